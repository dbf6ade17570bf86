"""CPU budgets of the test suites, tests that run in few of the targets, and fixtures that all suites share."""

from __future__ import annotations

import gc
import itertools
import os
import re
import signal
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from det_testing import is_soak

from det_core.tracking import _sqlite, open_store
from det_core.tracking._sqlite import WalSync

# Background jobs of shells and of nohup ignore these signals, and their children would inherit this.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

MAKE_TEST = "not (slow or campaign)"
BUDGETS = {
    "tests": 120,
    "tests/cli": 60,
    "tests/comm": 9,
    "tests/runner": 110,
    "tests/tracking": 70,
    "plugins/testing/tests": 70,
    "plugins/cluster/tests": 15,
    "plugins/torch/tests": 70,
    "plugins/torch_distributed/tests": 50,
    "plugins/horovod/tests": 7,
    "plugins/deepspeed/tests": 17,
    "plugins/slurm/tests": 9,
    "plugins/tensorflow/tests": 8,
    "plugins/estimator/tests": 18,
    "plugins/keras/tests": 25,
    "plugins/storage_s3/tests": 17,
    "plugins/storage_gcs/tests": 9,
    "plugins/storage_azure/tests": 12,
    "plugins/storage_fsspec/tests": 11,
    "plugins/mlflow/tests": 13,
    "plugins/optuna/tests": 10,
    "plugins/jax/tests": 14,
    "plugins/trackio/tests": 6,
    "plugins/wandb/tests": 11,
    "plugins/ray/tests": 25,
    "plugins/kubernetes/tests": 11,
    "plugins/server/tests": 95,
    "plugins/transformers/tests": 12,
    "plugins/compat/tests": 10,
}
"""Maximum CPU seconds of each suite in ``make test``, including child processes.

They are a quarter above what a quiet machine with two fast cores took. Beside other work, suites take up to twice as
much. The set-up comes on top.
"""

SLOW = {
    "plugins/deepspeed/tests/test_adapter.py": ("adversaries", "a_stop_that_one_slot_requests"),
    "plugins/kubernetes/tests/test_failures.py": (
        "without_memory",
        "lost_node",
        "image_that_is_not_there",
        "waits_for_a_node",
        "away_for_a_moment",
        "not_in_the_manifest",
    ),
    "plugins/slurm/tests/test_compliance.py": ("large_code",),
    "plugins/torch_distributed/": (
        "fails_the_job[last]",
        "ignores_sigterm",
        "launcher_leaves_nothing",
        "launches_at_once",
    ),
    "tests/launch/test_local_compliance.py": (
        "large_code",
        "holder_is_killed",
        "resumed_trial",
        "crash_and_a_pause",
        "from_any_thread",
        "close_releases",
        "code_is_that_of_the_command[success]",
        "code_is_that_of_the_command[do not restart]",
        "code_is_that_of_the_command[SIGTERM]",
        "any_bytes",
        "long_lines",
        "overwritten",
        "no_process_outlives",
        "that_hang",
    ),
    "plugins/testing/tests/test_framework.py": ("TestSharesBatches::test_slots_resume_exactly",),
}
"""Expensive tests of shared suites, by parts of their names. Unit tests of the same rules are in ``make test``."""

_OTHER_RANKS = (
    "fails_the_job[chief]",
    "says_why[last]",
    "ends_all[waiting-chief]",
    "ends_all[waiting-last]",
    "ends_all[asleep-chief]",
    "can_end_it[2]",
)
_TENSORFLOW = ("undisturbed[after every batch]", "undisturbed[once]", "same_seed")
SOAK = {
    "plugins/deepspeed/": (
        "two_hosts",
        "random_kills",
        "failed_and_resumed",
        "a_stuck_slot",
        "four_slots",
        "test_a_rehearsal",
        "TestStage3::test_gradients_travel_as_float16",
        "test_launches.py",
    ),
    "plugins/estimator/": _TENSORFLOW,
    "plugins/horovod/": (
        *_OTHER_RANKS,
        "rank_of_its_own[1]",
        "launches_at_once",
        "the_example_trains_on_two_slots",
        "what_one_does[aggregated-estimator]",
        "TestHorovod::test_two_slots_train_what_one_does[plain",
        "killed_and_resumed_is_as_if_undisturbed",
        "every_name_of_the_interface_works",
        "test_a_rehearsal",
        "test_validation_is_of_all_data_once",
        "test_two_hosts",
        "[one model]",
        "the_chief_alone_reports",
        "four_slots",
        "random_kills",
        "a_stop_that_one_slot_requests",
        "a_stuck_slot",
    ),
    "plugins/jax/": ("undisturbed[after every batch]", "undisturbed[once]", "test_campaign.py"),
    "plugins/keras/": (*_TENSORFLOW, "TestFromArrays::test_killed_is_as_if"),
    "plugins/torch_distributed/": (
        *_OTHER_RANKS,
        "rank_of_its_own",
        "workers_talk",
        "four_slots",
        "rehearsal_changes_nothing[one model]",
        "TestReplicas::test_failed_and_resumed",
        "TestReplicas::test_two_hosts",
        "TestShards::test_a_stuck_slot",
        "TestShards::test_two_slots_train_what_one_does[one model]",
        "TestShards::test_validation_is_of_all_data_once[one model]",
        "TestShards::test_metrics_are_of_all_slots[one model]",
        "TestShards::test_a_rehearsal_ends",
        "TestShards::test_the_chief_alone",
        "TestShards::test_gradients_travel_as_float16",
    ),
    "plugins/torch/": (
        "test_campaign.py::test_a_trial_killed_at_random_equals_an_undisturbed_one[0-True]",
        "TestExample::test_two_slots_train_what_one_does[one model]",
        "TestExample::test_a_rehearsal_changes_nothing[one model]",
        "TestExample::test_validation_is_of_all_data_once[one model]",
        "TestExample::test_metrics_are_of_all_slots[one model]",
        "test_gradients_travel_as_float16",
        "test_end_to_end.py::test_a_trial_killed_at_random_batches_equals_an_undisturbed_one[digits_pytorch_context-0]",
    ),
    "plugins/compat/": ("loads[digits_012_steps]", "loads[digits_038_trainer]", "loads[iris_012_create]"),
    "plugins/ray/": ("slots_are_gpus",),
    "plugins/storage_azure/": ("resumes_from_its_checkpoints[20]",),
    "plugins/storage_fsspec/": ("resumes_from_its_checkpoints[20]",),
    "plugins/server/": ("test_people_log_in_see_what_their_role_permits_and_log_out[postgresql]",),
    "tests/runner/": ("test_256_trials", "test_a_search_of_thousands_of_trials"),
    "tests/packaging/": ("test_alone[tensorflow]",),
    "tests/search/": ("::test_another_process_gives_the_same_actions",),
}
"""Tests for the soak, by parts of their names. They repeat a rule of another test with another rank, trial or backend;
the search methods share two processes in ``tests/search/test_compliance.py``."""

_LAUNCHERS = (
    "plugin_is_light",
    "wrong_options",
    "options_can_be_stored",
    "describes_its_slots",
    "wait_for_slots",
    "cluster_info",
    "kill_ends_all",
    "not_visible_to_others",
)
_ENGINES = (
    *_LAUNCHERS,
    "withdrawn[kill]",
    "reaches_the_workers",
    "variables_arrive",
    "long_lines",
    "large_code",
)
_STORES = ("a_saved_checkpoint", "stored_tells", "cannot_be_used")
_BUCKETS = (
    *_STORES,
    "large_file",
    "threads_do_not",
    "odd_names",
    "long_names",
    "empty_directories",
    "paths_that_begin_alike",
)
DIFFERENT = {
    "plugins/keras/tests/test_framework_suite.py::TestFromDataset::": (
        "killed_is_as_if",
        "does_not_change_training",
        "undisturbed[four times]",
        "[epochs]",
        "warm_start",
    ),
    "plugins/jax/tests/test_framework_suite.py::TestFunctions::": (
        "killed_is_as_if",
        "undisturbed[four times]",
        "warm_start",
        "loading_runs_no_code",
        "slots_",
    ),
    "plugins/testing/tests/test_backend_docs.py::TestExample::": (
        "plugin_is_light",
        "fails_the_job[chief]",
        "ends_all[asleep-last]",
        "rank_of_its_own[3]",
        "two_nodes_are_one_job",
    ),
    "plugins/testing/tests/test_launcher_docs.py::TestExample::": (
        *_LAUNCHERS,
        "crash_and_a_pause",
        "different_slots",
        "preemption_reaches_the_workers",
        "[failure]",
    ),
    "plugins/kubernetes/tests/test_compliance.py::TestKubernetes::": (*_ENGINES, "outlive_a_lost_connection"),
    "plugins/ray/tests/test_compliance.py::TestRay::": _ENGINES,
    "plugins/slurm/tests/test_compliance.py::TestJobs::": (*_ENGINES, "lines_have_their_rank"),
    "plugins/storage_azure/tests/test_storage.py::TestAzure::": (*_BUCKETS, "line_end"),
    "plugins/storage_fsspec/tests/test_storage.py::TestSftp::": (*_BUCKETS, "line_end", "side_by_side"),
    "plugins/storage_gcs/tests/test_compliance.py::TestGCS::": _BUCKETS,
    "plugins/storage_s3/tests/test_storage.py::TestS3::": (*_BUCKETS, "more_files_than_one_page", "line_end"),
    "tests/launch/test_local_compliance.py::TestPrepared::": (
        "calls_reach",
        "different_slots",
        "workers_that_connect_later",
        "a_kill_ends_all",
        "outlives_the_command",
        "waits_for_the_end_of_the_previous",
        "stream_and_order",
        "while_the_processes_run",
        "any_bytes",
        "last_lines",
        "[failure]",
        "[SIGKILL]",
        "an_end_does_not_change",
        "lack_of_memory",
        "unpacked_code",
        "interpreter_of_the_node",
        "variables_of_the_request",
        "input_is_empty",
        "default_actions",
    ),
    "plugins/cluster/tests/test_ssh_example.py::TestSsh::": (*_LAUNCHERS, "more_slots", "different_slots"),
    "tests/search/test_compliance.py::TestCustom::": (
        "every_trial_is_closed[options0-mixed",
        "the_same_events",
        "recorded_actions",
        "any_metric_is_accepted",
        "length_of_training",
        "dumped_config",
    ),
    "tests/storage/test_compliance.py::TestSharedFS::": (
        *_STORES,
        "many_files",
        "local_path",
        "medium_is_found",
    ),
}
"""Parts of the names of a suite's tests in which this implementation may differ from one that runs all: the local
launcher, torchrun, a bucket in memory, a directory, data in arrays, JAX's objects, and built-in search methods. The
others run in the soak."""

PROCESSES = ("::test_another_process_", "::test_processes_do_", "::test_the_plugin_module_is_quick_to_import")
"""Tests of shared suites that start processes, by the beginnings of their names. A suite has no markers of its own."""

MATRICES = ("plugins/slurm/", "plugins/ray/", "plugins/kubernetes/")
"""Suites of which a soak runs all tests, because each disturbs an experiment in another way."""


@pytest.fixture(scope="session")
def _all_paths(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    return (f"{tmp_path_factory.getbasetemp()}/{number}-" for number in itertools.count())


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, _all_paths: Iterator[str]) -> Path:
    """Return a new directory. To name one, the fixture of pytest reads the names of those of all tests."""
    path = Path(next(_all_paths) + re.sub(r"\W", "_", request.node.name)[:30])
    path.mkdir(0o700)
    return path


@pytest.fixture(scope="session")
def _all_slots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slots")


@pytest.fixture(autouse=True)
def slots_directory(_all_slots: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test slots of its own, so that suites that run side by side do not wait for each other."""
    directory = _all_slots / uuid.uuid4().hex
    monkeypatch.setenv("DET_SLOTS_DIR", str(directory))
    return directory


@pytest.fixture(scope="session", autouse=True)
def _statements_are_compiled_once() -> Iterator[None]:
    """Let all SQLite stores share compiled statements, which otherwise each store compiles again."""
    create, dialects, compiled = sqlalchemy.create_engine, dict[str, sqlalchemy.Dialect](), dict[Any, Any]()

    def create_engine(url: sqlalchemy.URL, **options: Any) -> sqlalchemy.Engine:
        engine = create(url, **options)
        if engine.name == "sqlite":
            engine.dialect = dialects.setdefault(engine.name, engine.dialect)  # part of the keys
            engine.update_execution_options(compiled_cache=compiled)
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlalchemy, "create_engine", create_engine)
        yield


@pytest.fixture(scope="session")
def make_empty_database(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], bytes]:
    """Return a function that returns the contents of the file of a new tracking store, with an id of its own."""
    path = tmp_path_factory.mktemp("empty") / "det.db"
    with open_store(f"sqlite:///{path}") as store:
        cluster_id = store.cluster_id.encode()
    contents = path.read_bytes()
    assert contents.count(cluster_id) == 1
    return lambda: contents.replace(cluster_id, uuid.uuid4().hex.encode())


@pytest.fixture(autouse=True)
def _quick_records(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, make_empty_database: Callable[[], bytes]
) -> None:
    """Let unit tests copy an empty tracking store and write without sync. Other tests create and sync their own."""
    if any(map(request.node.get_closest_marker, ("integration", "slow", "campaign"))):
        return
    create = _sqlite._create_file

    def copy(path: Path) -> None:
        is_new = not path.exists()
        create(path)
        if is_new:
            path.write_bytes(make_empty_database())

    monkeypatch.setattr(_sqlite, "_create_file", copy)
    monkeypatch.setattr(WalSync, "schedule", lambda self: None)  # its timer would fire in another test
    monkeypatch.setattr(_sqlite, "_SYNCHRONOUS", {True: "OFF", False: "OFF"})
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.args[0] in BUDGETS:
        _require_different_tests(items)
    for item in items:
        if is_soak() and item.nodeid.startswith(MATRICES):
            item.add_marker(pytest.mark.campaign)
        if any(name in item.nodeid for name in PROCESSES):
            item.add_marker(pytest.mark.integration)
        if _is_in(item, SLOW):
            item.add_marker(pytest.mark.slow)
        if _is_in(item, SOAK) or (item.nodeid.startswith(tuple(DIFFERENT)) and not _is_in(item, DIFFERENT)):
            item.add_marker(pytest.mark.soak)
    if not is_soak():
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("soak")])
        items[:] = [item for item in items if not item.get_closest_marker("soak")]


def _require_different_tests(items: Sequence[pytest.Item]) -> None:
    """Require that every part of a name in `DIFFERENT` is that of a test. A renamed one would run in the soak only."""
    for path, parts in DIFFERENT.items():
        names = [item.nodeid for item in items if item.nodeid.startswith(path)]
        for part in parts if names else ():
            if not any(part in name for name in names):
                raise pytest.UsageError(f"no test of {path} has {part!r} in its name; change DIFFERENT in conftest.py")


def _is_in(item: pytest.Item, table: Mapping[str, Sequence[str]]) -> bool:
    """Return whether a table of test names by the beginning of their path has a part of this test's name."""
    return any(item.nodeid.startswith(path) and any(part in item.nodeid for part in table[path]) for path in table)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name archives, which contain the time, by their argument, so that each run has the same names of tests."""
    return argname if isinstance(val, bytes) and val.startswith(b"\x1f\x8b") else None


def pytest_collection_finish() -> None:
    gc.freeze()  # a tenth of the time went into visiting the imported modules again and again


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    spent = sum(os.times()[:4])
    suite = " ".join(config.args)
    budget = BUDGETS.get(suite) if config.option.markexpr == MAKE_TEST else None
    terminalreporter.write_line(f"{suite}: {spent:.0f} CPU seconds" + (f" of {budget}" if budget else ""))
