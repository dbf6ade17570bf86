"""Page of a trial: what ended its last run and what follows, its runs and what they cost, and its logs."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from html import unescape
from typing import Any

import pytest
from det_server.pages import logs

from det_core.interfaces.records import CodeVersion, LogLine, Machine, MetricsReport, State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import log_reading

from .serving import ServedSite

CONFIG = {"name": "x", "max_restarts": 2, "resources": {"slots_per_trial": 4}}
FAILED = {"reason": "rank 3: ValueError: no <loss> (batch 31, model_def.py:42)", "exit_code": 1}
LOST = {"reason": "node lost: n2", "exit_code": 1, "cause": "node lost"}
KILLED = {"reason": "the worker was terminated by signal 9", "exit_code": -9}


def text_of(html: str) -> str:
    """Return the text of a part of a page, in one line."""
    return " ".join(unescape(re.sub("<[^>]*>", " ", html)).split())


def failure_on(site: ServedSite, trial: int) -> str:
    """Return the text of the failure on the page of a trial, or ""."""
    page = site.owner.get(f"/trials/{trial}").text
    return text_of("".join(re.findall('<section class="message failure".*?</section>', page, re.DOTALL)))


def train(store: TrackingStore, trial: int, steps: int, **end: Any) -> None:
    """Record a run that trained, saved a checkpoint 5 batches before its end, and ended."""
    run = store.start_run(trial, allocation_id="a").run_id
    store.report_metrics(
        [MetricsReport(trial_id=trial, run_id=run, group="training", steps_completed=steps, metrics={"loss": 1.0})]
    )
    store.begin_checkpoint(f"c{trial}-{run}", trial_id=trial, run_id=run, storage={})
    store.complete_checkpoint(f"c{trial}-{run}", run_id=run, steps_completed=steps - 5, resources={}, metadata={})
    store.set_trial_placement(trial, run, "running on n1, n2 (Slurm job 4711)")
    store.end_run(trial, run, **end)


@pytest.fixture
def trial(local: ServedSite) -> int:
    experiment = local.store.create_experiment(config=CONFIG).id
    local.store.acquire_lease(experiment, "here:1:1:x", seconds=600, state=State.ACTIVE)
    return local.store.create_trial(experiment, hparams={}, seed=1).id


@pytest.mark.parametrize(
    ("end", "restarts", "state", "title", "rest"),
    [
        (FAILED, 3, State.ERROR, "Run 1 failed", "given up, because it may restart 2 times (max_restarts)."),
        (FAILED, 1, State.ERROR, "Run 1 failed", "a restart would fail in the same way. 1 of 2 restarts used."),
        (FAILED, 1, State.ACTIVE, "Run 1 failed", "starts again soon, 1 of 2 restarts used."),
        (LOST, 1, State.ERROR, "Run 1 failed", "given up, after 0 interruptions, 1 of 2 restarts used."),
        (
            LOST,
            0,
            State.PAUSED,
            "Run 1 was interrupted",
            "continues from its latest checkpoint with det experiment resume 1",
        ),
    ],
)
def test_the_page_says_what_ended_the_last_run_and_what_follows(
    local: ServedSite, trial: int, end: dict[str, Any], restarts: int, state: State, title: str, rest: str
) -> None:
    train(local.store, trial, 50, **end)
    for _ in range(restarts):
        local.store.count_restart(trial)
    local.store.set_trial_state(trial, state)
    shown = failure_on(local, trial)
    assert shown.startswith(title)
    assert shown.endswith(rest)
    assert "nodes n1, n2 (Slurm job 4711)" in shown
    if end is FAILED:
        assert "ValueError: no <loss> exit code 1" in shown
        assert "rank 3 batch 31 line model_def.py:42" in shown
        link = f'href="/trials/{trial}?level=ERROR&amp;rank=3#logs-heading">Errors in the log'
        assert link in local.owner.get(f"/trials/{trial}").text
    else:
        assert "cause node lost" in shown


def test_a_failure_is_shown_while_the_trial_trains_again(local: ServedSite, trial: int) -> None:
    store = local.store
    train(store, trial, 50, **KILLED)
    store.count_restart(trial)
    store.start_run(trial, allocation_id="b")
    store.set_trial_state(trial, State.ACTIVE)
    shown = failure_on(local, trial)
    assert "exit code signal 9 (SIGKILL)" in shown
    assert shown.endswith("The trial continues in run 2, 1 of 2 restarts used.")
    store.release_lease(1, "here:1:1:x")
    assert failure_on(local, trial).endswith("It continues with det experiment resume 1")


@pytest.mark.parametrize(
    "end",
    [
        lambda store, trial: store.start_run(trial, allocation_id="a"),
        lambda store, trial: train(store, trial, 50, exit_code=0),
        lambda store, trial: (train(store, trial, 50, **FAILED), store.set_trial_state(trial, State.COMPLETED)),
        lambda store, trial: (train(store, trial, 50, **KILLED), store.set_trial_state(trial, State.CANCELED)),
    ],
)
def test_a_healthy_trial_has_no_failure(local: ServedSite, trial: int, end: Callable[..., None]) -> None:
    end(local.store, trial)
    assert failure_on(local, trial) == ""


def test_the_runs_have_their_costs_and_a_total(local: ServedSite, trial: int) -> None:
    store = local.store
    train(store, trial, 50, **FAILED, slots=2)
    train(store, trial, 80, **LOST)
    store.start_run(trial, allocation_id="b")
    page = local.owner.get(f"/trials/{trial}").text
    rows = [text_of(row) for row in re.findall("<tr>.*?</tr>", page.partition('id="runs"')[2], re.DOTALL)]
    cells = [re.sub(r"\b\d s\b", "0 s", re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "T", row)) for row in rows]
    cells = [re.sub(r" < 0\.001 | 0\.0+\d* ", " H ", row).replace("–", "-") for row in cells]  # noqa: RUF001
    assert cells[1:] == [
        "3 T - < 1 min 4 H 0 has not ended -",
        "2 T T 0 s 4 H 30 node lost: n2 n1, n2 (Slurm job 4711)",
        f"1 T T 0 s 2 H 45 {FAILED['reason']} n1, n2 (Slurm job 4711)",
        "total of 3 runs 0 s H 75",
    ]


def test_the_page_has_the_commit_the_machine_and_the_packages(local: ServedSite) -> None:
    store = local.store
    version = CodeVersion(commit="a" * 40, branch="main", is_changed=True, remote="https://example.org/<b>")
    experiment = store.create_experiment(config=CONFIG, code_version=version).id
    trial = store.create_trial(experiment, hparams={}, seed=1).id
    store.start_run(trial, allocation_id="a")
    gpus = [{"name": "NVIDIA H100", "memory": 80 << 30, "driver": "570.1"}] * 2
    first = Machine(host="n<1>", system="Debian 12", cpus=8, memory=1 << 35, gpus=gpus, packages={"torch": "2.11<"})
    store.record_machine(trial, 1, first)
    store.record_machine(trial, 1, Machine(host="n2", node=1))
    shown = origin_on(local, trial)
    for part in (
        f"commit {version.commit} branch main remote https://example.org/<b> changed since yes",
        "host n<1> system Debian 12 CPUs 8 memory 34.4 GB GPUs 2 x NVIDIA H100, 85.9 GB GPU driver 570.1",
        "The first of 2 machines: n<1>, n2.",
        "1 package torch==2.11<",
    ):
        assert part in shown
    page = local.owner.get(f"/trials/{trial}").text
    assert "n<1>" not in page and "2.11<" not in page
    assert 'data-label="nodes">n&lt;1&gt;, n2</td>' in page
    for path in (f"/experiments/{experiment}", f"/experiments/{experiment}/search"):
        assert "commit aaaaaaaaaaaa , changed since" in text_of(local.owner.get(path).text)
    assert local.owner.get("/experiments?where=commit+~+aaaa").text.count(f'href="/experiments/{experiment}"')


def test_a_trial_without_commit_and_machine_says_so(local: ServedSite, trial: int) -> None:
    assert "Neither the commit of the code nor the machine is recorded." in origin_on(local, trial)


def origin_on(site: ServedSite, trial: int) -> str:
    return text_of(site.owner.get(f"/trials/{trial}").text.partition('id="origin"')[2].partition("</section>")[0])


WORDS = {"stdout": "loss 1 of", "stderr": "loss is NaN in", "det": "run starts at"}


@pytest.fixture
def logged(local: ServedSite, trial: int) -> int:
    """A trial with 30 lines: five of rank 0 on stdout and five of rank 1 on stderr, then one of det, and so on."""
    start = datetime(2026, 5, 4, 3, 2, 1, tzinfo=timezone.utc)
    kinds = [(0, "stdout", "INFO")] * 5 + [(1, "stderr", "WARNING")] * 4 + [(0, "det", "INFO")]
    lines = [
        LogLine(
            trial_id=trial,
            run_id=1,
            rank=rank,
            stdtype=stdtype,
            level=level,
            log=f"{WORDS[stdtype]} {number}",
            time=start + timedelta(seconds=number),
        )
        for number, (rank, stdtype, level) in enumerate(kinds * 3)
    ]
    local.store.add_logs(lines)
    return trial


FILTERS = [
    ("rank=1", 12),
    ("rank=0,1", 27),
    ("stdtype=det", 3),
    ("level=WARNING", 12),
    ("search=LOSS+is", 12),
    ("rank=1&search=in+28", 1),
    ("rank=x&stdtype=y&level=z", 30),
    ("search=nothing", 0),
]


@pytest.mark.parametrize(("query", "number"), FILTERS)
def test_logs_are_filtered_by_the_url(local: ServedSite, logged: int, query: str, number: int) -> None:
    data, page = (local.owner.get(f"{path}/{logged}?{query}") for path in ("/data/logs", "/trials"))
    assert len(data.json["lines"]) == page.text.count("<li data-id=") == number
    saved = local.owner.get(f"/trials/{logged}/logs.txt?{query}")
    assert len(saved.text.splitlines()) == number
    assert saved.headers["content-type"] == "text/plain; charset=utf-8"
    assert ('class="no-lines"><p class="note">No line matches this filter' in page.text) == (number == 0)


def test_a_link_leads_to_the_errors_of_each_rank(local: ServedSite, logged: int) -> None:
    local.store.start_run(logged, allocation_id="a")
    page = local.owner.get(f"/trials/{logged}").text
    links = re.findall(r'href="(/trials/\d+\?level=ERROR&amp;rank=(\d))#logs-heading">\2</a>', page)
    assert links == [(f"/trials/{logged}?level=ERROR&amp;rank={rank}", str(rank)) for rank in range(4)]
    alone = local.store.create_experiment(config={"resources": {"slots_per_trial": 1}}).id
    alone = local.store.create_trial(alone, hparams={}, seed=1).id
    local.store.start_run(alone, allocation_id="a")
    assert "Errors of rank" not in local.owner.get(f"/trials/{alone}").text


def test_a_filter_that_no_database_can_store_is_refused_before_a_download_begins(
    local: ServedSite, logged: int
) -> None:
    answer = local.owner.get(f"/trials/{logged}/logs.txt?search=%00")
    assert answer.status == 400 and "which no database can store" in answer.text


def test_lines_have_their_time_source_and_level(local: ServedSite, logged: int) -> None:
    first, *_, last = local.owner.get(f"/data/logs/{logged}").json["lines"]
    assert (first["time"], first["source"], first["level"]) == ("2026-05-04T03:02:01+00:00", "0", "")
    assert first["text"] == [["", "loss 1 of 0"]]
    assert (last["source"], last["level"]) == ("det", "")
    page = local.owner.get(f"/trials/{logged}").text
    assert 'data-at="03:02:06" data-source="1 err" data-level="WARNING">loss is NaN in 5</li>' in page


@pytest.mark.parametrize("limit", [1, 4, 100])
def test_filtered_lines_continue_in_both_directions(local: ServedSite, logged: int, limit: int) -> None:
    for name, start in (("after", 0), ("before", 0)):
        found, more, edge = list[int](), True, start
        while more:
            part = local.owner.get(f"/data/logs/{logged}?rank=1&limit={limit}&{name}={edge}").json
            ids, more, edge = [one["id"] for one in part["lines"]], part["more"], part[name]
            found = found + ids if name == "after" else ids + found
        assert found == [id_ for id_ in range(1, 31) if (id_ - 1) % 10 in range(5, 9)]


def test_a_response_ends_in_time_and_says_up_to_where_it_has_looked(
    local: ServedSite, logged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reading, "_WINDOW", 10)
    monkeypatch.setattr(logs, "_MOST_SECONDS", 0.0)
    path = f"/data/logs/{logged}?search=nothing"
    assert local.owner.get(f"{path}&after=0").json == {"lines": [], "more": True, "after": 10, "before": 1}
    assert local.owner.get(f"{path}&before=0").json == {"lines": [], "more": True, "after": 30, "before": 21}
