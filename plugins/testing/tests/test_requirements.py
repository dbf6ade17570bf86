"""Tests that need what a machine lacks are skipped, and fail in CI."""

from __future__ import annotations

import pytest
from det_testing.requirements import require_module, skip_or_fail_in_ci


def test_a_test_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no such program"):
        skip_or_fail_in_ci("no such program")


def test_a_test_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no such program"):
        skip_or_fail_in_ci("no such program")


def test_a_missing_module_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    require_module("json", "pip install json")
    with pytest.raises(pytest.skip.Exception, match="no_such_module is not installed; install it: pip install it"):
        require_module("no_such_module", "pip install it")
