"""CPU budgets of the test suites, tests that run in ``make test-more`` only, and slots that no other test uses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from det_core.testing import is_soak

MAKE_TEST = "not (slow or campaign)"
BUDGETS = {
    "tests": 190,
    "tests/cli": 55,
    "tests/runner": 105,
    "tests/tracking": 50,
    "plugins/torch/tests": 80,
    "plugins/torch_distributed/tests": 65,
    "plugins/horovod/tests": 6,
    "plugins/deepspeed/tests": 20,
    "plugins/slurm/tests": 10,
    "plugins/tensorflow/tests": 8,
    "plugins/estimator/tests": 16,
    "plugins/keras/tests": 28,
    "plugins/storage_s3/tests": 22,
    "plugins/storage_gcs/tests": 10,
    "plugins/mlflow/tests": 12,
    "plugins/ray/tests": 20,
    "plugins/server/tests": 65,
    "plugins/compat/tests": 10,
}
"""Maximum CPU seconds of each suite in ``make test``, including child processes.

They are half above what a quiet machine with two fast cores took. Beside other work, suites take up to twice as much.
The set-up comes on top.
"""

SLOW = {
    "plugins/deepspeed/tests/test_adapter.py": ("adversaries", "a_stop_that_one_slot_requests"),
    "plugins/slurm/tests/test_compliance.py": ("large_code",),
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
}
"""Expensive tests of shared suites, by parts of their names. Unit tests of the same rules are in ``make test``."""

_ALL_LAUNCHERS = (
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
    *_ALL_LAUNCHERS,
    "withdrawn[kill]",
    "reaches_the_workers",
    "variables_arrive",
    "long_lines",
    "large_code",
)
DIFFERENT = {
    "tests/launch/test_ssh_example.py::TestSsh": (*_ALL_LAUNCHERS, "more_slots", "different_slots"),
    "plugins/slurm/tests/test_compliance.py::TestJobs": (*_ENGINES, "lines_have_their_rank"),
    "plugins/ray/tests/test_compliance.py::TestRay": _ENGINES,
}
"""Parts of the names of the launcher suite's tests that may differ from the local launcher. Others run in the soak."""

MATRICES = ("plugins/slurm/", "plugins/ray/")
"""Suites of which a soak runs all tests, because each disturbs an experiment in another way."""


@pytest.fixture(autouse=True)
def slots_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test slots of its own, so that suites that run side by side do not wait for each other."""
    directory = tmp_path / "slots"
    monkeypatch.setenv("DET_SLOTS_DIR", str(directory))
    return directory


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if is_soak() and item.nodeid.startswith(MATRICES):
            item.add_marker(pytest.mark.campaign)
        file, *names = item.nodeid.split("::")
        if any(part in item.nodeid for part in SLOW.get(file, ())):
            item.add_marker(pytest.mark.slow)
        suite = f"{file}::{names[0]}"
        if suite in DIFFERENT and not any(part in item.name for part in DIFFERENT[suite]):
            item.add_marker(pytest.mark.soak)
    if not is_soak():
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("soak")])
        items[:] = [item for item in items if not item.get_closest_marker("soak")]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    spent = sum(os.times()[:4])
    suite = next(iter(config.args), "")
    budget = BUDGETS.get(suite) if config.option.markexpr == MAKE_TEST else None
    terminalreporter.write_line(f"{suite}: {spent:.0f} CPU seconds" + (f" of {budget}" if budget else ""))
