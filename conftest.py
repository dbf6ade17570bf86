"""CPU budgets of the test suites, tests that run in ``make test-more`` only, and slots that no other test uses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from det_core.testing import is_soak

MAKE_TEST = "not (slow or campaign)"
BUDGETS = {
    "tests": 590,
    "tests/cli": 195,
    "tests/runner": 440,
    "tests/tracking": 175,
    "plugins/torch/tests": 135,
    "plugins/torch_distributed/tests": 165,
    "plugins/horovod/tests": 85,
    "plugins/deepspeed/tests": 35,
    "plugins/slurm/tests": 75,
    "plugins/tensorflow/tests": 17,
    "plugins/estimator/tests": 25,
    "plugins/keras/tests": 45,
    "plugins/storage_s3/tests": 115,
    "plugins/storage_gcs/tests": 30,
    "plugins/mlflow/tests": 20,
    "plugins/ray/tests": 60,
    "plugins/server/tests": 133,
    "plugins/compat/tests": 16,
}
"""Maximum CPU seconds of each suite in ``make test``, including child processes.

They are a fifth above what a run took that had a machine with two cores to itself. Beside other work, suites take up
to twice as much. Horovod's build and the set-up come on top.
"""

REPEATED = {
    "plugins/horovod/tests/test_training.py": ("adversaries", "a_stop_that_one_slot_requests", "a_stuck_slot"),
    "plugins/deepspeed/tests/test_adapter.py": ("adversaries", "a_stop_that_one_slot_requests", "a_stuck_slot"),
    "plugins/deepspeed/tests/test_launches.py": ("",),
    "plugins/slurm/tests/test_compliance.py": ("large_code",),
    "tests/launch/test_ssh_example.py": (
        "large_code",
        "crash_and_a_pause",
        "holder_is_killed",
        "resumed_trial",
        "priority_and_submission",
        "from_any_thread",
        "close_releases",
        "not_visible_to_others",
        "can_be_withdrawn",
        "last_lines",
        "any_bytes",
        "long_lines",
        "overwritten",
        "lines_have",
        "need_not_be_python",
        "unpacked_code",
        "that_hang",
        "exit_code_is",
        "program_that",
        "damaged_code",
        "variables",
    ),
    "tests/launch/test_local_compliance.py": ("large_code", "holder_is_killed", "resumed_trial", "crash_and_a_pause"),
}
"""Expensive tests of shared suites, by parts of their names. ``make test`` runs those of backends for
det-torch-distributed and those of launchers for the local one. Tests of the runner cover what is left out there."""

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
        if any(part in item.nodeid for part in REPEATED.get(item.nodeid.partition("::")[0], ())):
            item.add_marker(pytest.mark.slow)
    if not is_soak():
        left_out = [item for item in items if item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    spent = sum(os.times()[:4])
    suite = next(iter(config.args), "")
    budget = BUDGETS.get(suite) if config.option.markexpr == MAKE_TEST else None
    terminalreporter.write_line(f"{suite}: {spent:.0f} CPU seconds" + (f" of {budget}" if budget else ""))
