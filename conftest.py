"""CPU time of test suites. Each suite ends with its CPU seconds next to its budget."""

from __future__ import annotations

import os

import pytest

MAKE_TEST = "not (slow or campaign)"
BUDGETS = {
    "tests": 560,
    "plugins/torch/tests": 90,
    "plugins/torch_distributed/tests": 130,
    "plugins/horovod/tests": 120,
    "plugins/deepspeed/tests": 150,
    "plugins/tensorflow/tests": 15,
    "plugins/estimator/tests": 25,
    "plugins/keras/tests": 30,
    "plugins/storage_s3/tests": 100,
    "plugins/storage_gcs/tests": 15,
    "plugins/compat/tests": 15,
}
"""CPU seconds of each suite in ``make test`` and its child processes. All suites and the set-up take 32 minutes."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    spent = sum(os.times()[:4])
    suite = next(iter(config.args), "")
    budget = BUDGETS.get(suite) if config.option.markexpr == MAKE_TEST else None
    terminalreporter.write_line(f"{suite}: {spent:.0f} CPU seconds" + (f" of {budget}" if budget else ""))
