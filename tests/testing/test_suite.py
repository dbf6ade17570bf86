"""Protection of compliance suites against being weakened by accident."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from det_core.testing.storage import StorageCompliance

STORE = """
import functools
import pytest
from det_core.storage.config import DirectoryConfig
from det_core.storage.directory import DirectoryStorage
from det_core.testing.storage import StorageCompliance

class Forgetful(DirectoryStorage):
    def list(self, storage_id):
        return {path: size for path, size in super().list(storage_id).items() if not path.endswith("/")}

class TestStore(StorageCompliance):
"""
OPENER = """
    @pytest.fixture
    def opener(self, tmp_path):
        return functools.partial(Forgetful, DirectoryConfig(container_path=tmp_path / "store"))
"""


def run(tmp_path: Path, body: str, tests: str) -> str:
    file = tmp_path / "test_store.py"
    file.write_text(STORE + body)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-k", tests, str(file)]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60).stdout


def test_redefining_a_test_is_an_error() -> None:
    with pytest.raises(
        TypeError, match=r"TestMine redefines test_a_lost_file_is_found of StoreCheckpointTests.*expected_failures"
    ):
        type("TestMine", (StorageCompliance,), {"test_a_lost_file_is_found": lambda self: None})
    with pytest.raises(TypeError, match="redefines test_list_tells_sizes"):
        type("TestMine", (StorageCompliance,), {"test_list_tells_sizes": None})


@pytest.mark.parametrize("first", [True, False])
def test_redefining_a_test_by_inheritance_is_an_error(first: bool) -> None:
    mixin = type("Mixin", (), {"test_a_lost_file_is_found": lambda self: None})
    with pytest.raises(TypeError, match="redefines test_a_lost_file_is_found"):
        type("TestMine", (mixin, StorageCompliance) if first else (StorageCompliance, mixin), {})


def test_subclasses_may_add_tests_and_attributes() -> None:
    mine = type("TestMine", (StorageCompliance,), {"test_of_my_own": lambda self: None, "longest_part": 100})
    with pytest.raises(TypeError, match="TestMore redefines test_of_my_own of TestMine"):
        type("TestMore", (mine,), {"test_of_my_own": None})


@pytest.mark.parametrize(
    ("failures", "message"),
    [
        ({"test_a_lost_file_is_fuond": "x"}, "is not one of its tests; did you mean 'test_a_lost_file_is_found'"),
        ({"quite_else": "x"}, "is not one of its tests$"),
        ({"test_a_lost_file_is_found": " "}, "has no reason for 'test_a_lost_file_is_found'"),
    ],
)
def test_expected_failures_name_tests_and_reasons(failures: dict[str, str], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        type("TestMine", (StorageCompliance,), {"expected_failures": failures})


@pytest.mark.integration
def test_an_expected_failure_runs_and_is_reported_with_its_reason(tmp_path: Path) -> None:
    test = "test_empty_directories_are_stored_and_removed"
    said = f"    expected_failures = {{{test!r}: 'this medium has no directories'}}\n" + OPENER
    assert f"{test} - this medium has no directories\n" in run(tmp_path, said, test)
    passes = f"    expected_failures = {{'test_list_tells_sizes': 'sizes are unknown'}}\n{OPENER}"
    assert "[XPASS(strict)] sizes are unknown" in run(tmp_path, passes, "test_list_tells_sizes")


@pytest.mark.integration
def test_a_single_case_may_be_expected_to_fail(tmp_path: Path) -> None:
    body = "    expected_failures = {'test_what_is_missing_is_not_found[A]': 'why not'}\n" + OPENER
    told = run(tmp_path, body, "test_what_is_missing")
    assert "5 passed" in told
    assert "[XPASS(strict)] why not" in told


@pytest.mark.integration
def test_failed_assertions_show_values(tmp_path: Path) -> None:
    assert "Extra items in the right set" in run(tmp_path, OPENER, "test_empty_directories_are_stored_and_removed")


@pytest.mark.integration
def test_a_missing_opener_and_one_that_cannot_be_pickled_are_errors(tmp_path: Path) -> None:
    assert "TestStore must override the fixture `opener`" in run(tmp_path, "    pass\n", "test_what_is_put")
    closure = OPENER.replace("functools.partial(", "lambda: (").replace("Forgetful, ", "Forgetful(") + ")"
    assert "`opener` must be picklable; otherwise set processes = False" in run(
        tmp_path, closure.replace("))\n)", ")))\n"), "processes"
    )
