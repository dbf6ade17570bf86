"""Protection of compliance suites against being weakened by accident."""

from __future__ import annotations

import subprocess
import sys

import pytest
from det_testing.storage import StorageCompliance

SUITES = """
import functools
import pytest
from det_core.storage.config import DirectoryConfig
from det_core.storage.directory import DirectoryStorage
from det_testing.storage import StorageCompliance

class Forgetful(DirectoryStorage):
    def list(self, storage_id):
        return {path: size for path, size in super().list(storage_id).items() if not path.endswith("/")}

class Opened(StorageCompliance):
    @pytest.fixture
    def opener(self, tmp_path):
        return functools.partial(Forgetful, DirectoryConfig(container_path=tmp_path / "store"))

class TestExpected(Opened):
    expected_failures = {
        "test_empty_directories_are_stored_and_removed": "this medium has no directories",
        "test_list_tells_sizes": "sizes are unknown",
        "test_what_is_missing_is_not_found[A]": "why not",
    }

class TestUnexpected(Opened):
    pass

class TestWithoutOpener(StorageCompliance):
    pass

class TestClosure(Opened):
    @pytest.fixture
    def opener(self, tmp_path):
        return lambda: Forgetful(DirectoryConfig(container_path=tmp_path / "store"))
"""
CHOSEN = (
    "TestExpected::test_empty_directories_are_stored_and_removed",
    "TestExpected::test_list_tells_sizes",
    "TestExpected::test_what_is_missing_is_not_found",
    "TestUnexpected::test_empty_directories_are_stored_and_removed",
    "TestWithoutOpener::test_what_is_put_is_got",
    "TestClosure::test_processes_do_not_disturb_each_other",
)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Run the chosen tests in another process, and return its output."""
    file = tmp_path_factory.mktemp("suites") / "test_store.py"
    file.write_text(SUITES)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider"]
    command += [f"{file}::{test}" for test in CHOSEN]
    return subprocess.run(command, cwd=file.parent, capture_output=True, text=True, timeout=250).stdout


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
def test_expected_failures_run_and_are_reported_with_their_reasons(told: str) -> None:
    assert "TestExpected::test_empty_directories_are_stored_and_removed - this medium has no directories\n" in told
    assert "[XPASS(strict)] sizes are unknown" in told


@pytest.mark.integration
def test_a_single_case_may_be_expected_to_fail(told: str) -> None:
    assert told.count("PASSED test_store.py::TestExpected::test_what_is_missing_is_not_found") == 5
    assert "[XPASS(strict)] why not" in told


@pytest.mark.integration
def test_failed_assertions_show_values(told: str) -> None:
    assert "Extra items in the right set" in told


@pytest.mark.integration
def test_a_missing_opener_and_one_that_cannot_be_pickled_are_errors(told: str) -> None:
    assert "TestWithoutOpener must override the fixture `opener`" in told
    assert "`opener` must be picklable; otherwise set processes = False" in told
