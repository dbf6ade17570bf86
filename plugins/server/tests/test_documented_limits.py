"""The guide lists the limits of the server as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from det_server import (
    _ansi_text,
    _credentials,
    _csv_export,
    _download_log,
    _event_files,
    _forms,
    _http_server,
    _importances,
    _large_answers,
    _listener,
    _live_changes,
    _login_limits,
    _request_bodies,
    _threads,
)
from det_server.api import _checkpoint_files, _deletions
from det_server.pages import (
    _code_diff,
    _comparison,
    _hyperparameters,
    _series,
    accounts,
    code,
    curves,
    experiment,
    logs,
    media,
    models,
    trial,
    utilization,
)

from det_core import json_values
from det_core.interfaces.account_records import MAX_TOKENS
from det_core.interfaces.records import (
    LARGEST_EVENT,
    LARGEST_RECORD,
    LARGEST_SAMPLE,
    LARGEST_VALUE,
    LONGEST_BRIEF,
    LONGEST_LABEL,
    LONGEST_LINE,
    LONGEST_NAME,
    LONGEST_SEARCH,
    MAX_LABELS,
    MAX_METRICS,
    MAX_ROWS,
    SEARCHED,
)
from det_core.interfaces.server_store import SHOWN_OF_REASONS
from det_core.launch.context_archive import MAX_CONTEXT_FILES

MIB, KIB = 1 << 20, 1 << 10
README = Path(__file__).parents[1] / "README.md"
GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "server.md"


LIMITS = {
    "connections": [_listener.MAX_CONNECTIONS, _listener.MAX_CONNECTIONS_PER_NETWORK, 64],
    "headers of a request": [
        _http_server.HEADER_SECONDS,
        _http_server.HEADER_BYTES // KIB,
        _http_server.HEADER_SECONDS,
    ],
    "answer whose client does not read": [_http_server.STALL_SECONDS],
    "body of a request": [_request_bodies._IDLE_SECONDS, _request_bodies._BYTES_PER_SECOND // KIB],
    "body of a request without valid credentials": [_request_bodies._DRAIN_SECONDS],
    "bodies in memory together, as far as they have arrived": [
        _request_bodies._BUFFERED_BYTES // MIB,
        _request_bodies._DEFAULT_BYTES // MIB,
        _request_bodies.MAX_BODY_BYTES // MIB,
        _request_bodies._SMALL_BUFFERED_BYTES // MIB,
        _request_bodies._SHORT_BYTES // KIB,
        _request_bodies._SMALL_BUFFERED_BYTES_PER_PERSON // MIB,
        _request_bodies._SMALL_BUFFERED_BYTES_PER_PERSON // MIB,
        _request_bodies._BUFFERED_BYTES_PER_RUN // MIB,
    ],
    "answers over 1 MiB in memory together": [
        _large_answers.MAX_ANSWERS_BYTES // MIB,
        _large_answers.MAX_BODY_BYTES // MIB,
    ],
    "files and directories of the code of an experiment": [MAX_CONTEXT_FILES],
    "fields": [_credentials.MAX_FIELDS, _forms._MOST_FIELDS],
    "config, notes, description or metadata of an experiment or a model, hyperparameters or metadata of a trial": [
        LARGEST_VALUE / MIB
    ],
    "error, reason or status of an experiment, a trial, a run or a checkpoint": [LARGEST_VALUE / MIB],
    "holder of the lease of an experiment": [LONGEST_NAME],
    "metrics of a report": [MAX_METRICS, LARGEST_RECORD / MIB, LONGEST_NAME],
    "metrics of all batches of a report, or event of a search with its actions": [LARGEST_EVENT / MIB],
    "storage, list of files or metadata of a checkpoint": [LARGEST_RECORD / MIB],
    "line of a log": [LONGEST_LINE / KIB],
    "sample of system metrics": [LARGEST_SAMPLE / KIB],
    "steps of metrics, lines of logs, samples, or events of a search that a call reports": [MAX_ROWS],
    "checkpoints, logs, points of curves, samples and events that a call or a page reads, "
    "and experiments, trials, runs and models that a call reads whole": [_threads.MAX_READ_CHARACTERS / MIB],
    "metrics that a page shows": [_series.MAX_METRICS, _series.MAX_CHARACTERS / KIB],
    "lines of logs that a page gets at once": [
        logs.MOST_LINES,
        _ansi_text.LONGEST_SHOWN_LINE,
        logs.MOST_CHARACTERS / MIB,
        logs._MOST_SECONDS,
    ],
    "samples of a chart of utilization that a page gets at once": [utilization._MOST_SECONDS],
    "what a page reads of the TensorBoard files of a trial": [
        media._MOST_FILES,
        _event_files.MOST_BYTES / MIB,
        _event_files.LARGEST_RECORD / MIB,
        _event_files.MOST_FIELDS,
        _event_files.MOST_SECONDS,
        _event_files.MOST_TAGS,
        _event_files.MOST_ITEMS,
    ],
    "points of a curve that a page gets": [curves._MOST_POINTS],
    "models, versions of a model, tokens that a page lists": [
        models._MOST_MODELS,
        models._MOST_VERSIONS,
        accounts._TOKENS_PER_PAGE,
    ],
    "trials in a comparison": [_comparison.MOST_TRIALS],
    "metrics in a comparison": [_comparison.MOST_METRICS],
    "config that a page shows as YAML": [code.MOST_YAML / KIB],
    "differences of code": [
        code.MOST_CODES,
        _code_diff.MOST_FILES,
        _code_diff.MOST_DIFFS,
        _code_diff.MOST_TEXT / 1000,
        _code_diff.MOST_CHANGES,
        _code_diff.MOST_LINES,
        _code_diff.MOST_SECONDS,
    ],
    "hyperparameters, and keys of configs, in a comparison": [_comparison.MOST_ROWS],
    "hyperparameters in a table that is sent as CSV": [experiment.MOST_EXPORTED],
    "hyperparameters of a trial, or config of an experiment, in lists, comparisons and tables that are sent as CSV": [
        LONGEST_BRIEF / KIB
    ],
    "hyperparameters among which a list or a picture looks for those that differ": [_hyperparameters._MOST_COMPARED],
    "hyperparameters in a table of trials or in a picture": [
        _hyperparameters.MOST_COLUMNS,
        _hyperparameters._LONGEST_NAME,
    ],
    "names of hyperparameters, and of keys of configs, of several records in one answer": [
        _hyperparameters._LONGEST_NAME
    ],
    "names of nested hyperparameters, metrics or samples, written as `optimizer.lr`": [json_values.LONGEST_KEYS / MIB],
    "hosts and GPUs in a chart": [utilization._MOST_CURVES],
    "charts of the use of CPU, memory and GPUs": [utilization._MOST_CHARTS, utilization._LONGEST_NAME],
    "runs that the page of a trial shows": [trial._MOST_RUNS, SHOWN_OF_REASONS],
    "text to look for in names and descriptions": [LONGEST_SEARCH, SEARCHED],
    "labels of an experiment, a model or a version": [MAX_LABELS, LONGEST_LABEL],
    "pages with live updates": [_live_changes.MAX_STREAMS, _live_changes.MAX_STREAMS_PER_PERSON],
    "files of checkpoints that are sent": [_checkpoint_files.MAX_DOWNLOADS, _checkpoint_files.MAX_DOWNLOADS_PER_PERSON],
    "computations of the importance of hyperparameters": [_importances.MAX_ASKED, 1, 1, _importances.SECONDS],
    "tables that are sent as CSV, and logs as text": [_csv_export.MAX_EXPORTS, _csv_export.MAX_EXPORTS_PER_PERSON],
    "sessions of a person": [MAX_TOKENS],
    "tokens of a person, without those of runs": [MAX_TOKENS],
    "deletions under way": [_deletions.MAX_DELETIONS_PER_PERSON],
    "work at a time": list(_threads.THREADS.values()),
    "requests of a person that run or wait": [_threads.MAX_REQUESTS_PER_PERSON],
    "entries of one person in the audit log": [
        _login_limits.MAX_CHANGES,
        _login_limits._WINDOW / 60,
        _login_limits.MAX_CHANGES_IN_A_DAY,
        1,
        _download_log.ENTRY_SECONDS / 3600,
    ],
    "failed logins in the audit log": [_login_limits.MAX_RECORDED_FAILURES, _login_limits._WINDOW / 60],
    "attempts to log in": [
        _login_limits._LIMITS["user and address"],
        _login_limits._LIMITS["address"],
        _login_limits._WINDOW / 60,
    ],
}


@pytest.mark.parametrize("what", LIMITS)
def test_a_limit_is_documented(what: str) -> None:
    (most,) = re.findall(rf"^\| {what} \| (.*?) \|", GUIDE.read_text(), re.MULTILINE)
    numbers = [float(number) for number in re.findall(r"[0-9]+", most.replace("IPv6", ""))]
    assert numbers == LIMITS[what]


def test_the_readme_has_the_limits_of_logins() -> None:
    (sentence,) = re.findall(r"Failed logins are limited: (.*?)\.\n", README.read_text())
    assert [int(number) for number in re.findall(r"[0-9]+", sentence)] == LIMITS["attempts to log in"]


def test_limits_of_one_kind_are_the_same() -> None:
    assert _large_answers.LARGE_BYTES == MIB
    assert _login_limits._LIMITS["user and device"] == _login_limits._LIMITS["user and address"]
