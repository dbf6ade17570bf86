"""Every test of the storage suite notices a store with a defect."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from det_testing.storage import Damage, Opener, StorageCompliance, _file_tests

from det_core.storage.config import DirectoryConfig
from plugins.testing.tests.broken_stores import CAUGHT_BY, Sound
from plugins.testing.tests.defects import caught_tests, list_tests, make_defect_tests
from tests.storage.damaged_files import change_files_of


class BrokenStores(StorageCompliance):
    store: type[Sound]

    @pytest.fixture(autouse=True)
    def _hurry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Wait less long for a later time, because the clock of these stores has fractions of seconds."""
        monkeypatch.setattr(_file_tests, "_CLOCK_TICK", 0.2)

    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return partial(self.store, DirectoryConfig(container_path=tmp_path / "store"))

    @pytest.fixture
    def broken(self, tmp_path: Path) -> Opener:
        (tmp_path / "file").touch()
        return partial(self.store, DirectoryConfig(container_path=tmp_path / "file" / "store"))

    @pytest.fixture
    def damage(self, tmp_path: Path) -> Damage:
        return change_files_of(tmp_path / "store")


INTEGRATION = {"test_processes_do_not_disturb_each_other"}
globals().update(make_defect_tests(BrokenStores, CAUGHT_BY, lambda store: {"store": store}, integration=INTEGRATION))


def test_every_test_of_the_suite_notices_a_defect() -> None:
    assert caught_tests(CAUGHT_BY) == list_tests(StorageCompliance)
