"""Tests of several managers, threads and processes that use one store at the same time."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from det_core import storage as det_storage
from det_core.errors import CheckpointNotFound
from det_core.interfaces.storage import StorageManager
from det_testing.storage._store_suite import Opener, Shelf, StoreSuite, implements_stored

_THREADS = 8
_PROCESSES = 2
_FILES_PER_WORKER = 10
_ROUNDS = 15
_LIMIT = 120.0
"""Time limit in seconds for all processes together."""


def work(storage: StorageManager, scratch: Path, worker: int) -> None:
    """Store files and read them back, some of them in a checkpoint that all workers share."""
    scratch.mkdir()
    shelf = Shelf(storage, scratch)
    for number in range(_FILES_PER_WORKER):
        content = f"{worker} {number} ".encode() * 100 * number
        for storage_id in ("shared", f"own-{worker}"):
            path = f"dir/{worker}/{number}"
            shelf.put(storage_id, path, content)
            if shelf.get(storage_id, path) != content:
                raise AssertionError(f"{path} of {storage_id} is not what was stored")


def open_and_work(opener: Opener, scratch: Path, worker: int) -> None:
    work(opener(), scratch, worker)


class StoreConcurrencyTests(StoreSuite):
    """Tests that changes are visible to all users of a store, and that users do not interfere with each other."""

    def test_two_managers_see_each_other(self, shelf: Shelf, opener: Opener) -> None:
        other = Shelf(opener(), shelf.scratch)
        shelf.put("c", "a", b"first")
        assert other.get_all("c") == {"a": b"first"}
        other.put("c", "a", b"second")
        assert shelf.get_all("c") == {"a": b"second"}
        shelf.storage.delete("c", ["a"])
        assert other.get_all("c") == {}

    def test_threads_do_not_disturb_each_other(self, shelf: Shelf) -> None:
        with ThreadPoolExecutor(_THREADS) as pool:
            jobs = [pool.submit(work, shelf.storage, shelf.scratch / str(worker), worker) for worker in range(_THREADS)]
        for job in jobs:
            job.result()
        self._all_is_there(shelf.storage, _THREADS)

    def test_processes_do_not_disturb_each_other(self, shelf: Shelf, opener: Opener) -> None:
        if not self.processes:
            pytest.skip("other processes cannot open this store")
        try:
            pickle.dumps(opener)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            pytest.fail(f"`opener` must be picklable; otherwise set processes = False: {error}")
        spawn = multiprocessing.get_context("spawn")
        started = [
            spawn.Process(target=open_and_work, args=(opener, shelf.scratch / str(worker), worker))
            for worker in range(_PROCESSES)
        ]
        for process in started:
            process.start()
        for process in started:
            process.join(_LIMIT / _PROCESSES)
            process.kill()  # does nothing to one that has ended
            process.join()
        assert [process.exitcode for process in started] == [0] * _PROCESSES
        self._all_is_there(shelf.storage, _PROCESSES)

    def test_put_and_delete_side_by_side(self, shelf: Shelf, opener: Opener) -> None:
        other = Shelf(opener(), shelf.scratch)

        def come_stay_and_go() -> None:
            for number in range(_ROUNDS):
                other.put("c", "dir/resident", b"%d" % number)
                for _ in range(_FILES_PER_WORKER):
                    assert other.get("c", "dir/resident") == b"%d" % number
                other.storage.delete("c", ["dir/resident"])

        with _while_it_runs(come_stay_and_go) as running:
            while running():
                shelf.put("c", "dir/guest", b"guest")
                shelf.storage.delete("c", ["dir/guest"])
                assert "dir/guest" not in shelf.storage.list("c")
        assert shelf.storage.list("c") == {}

    def test_a_file_appears_whole(self, shelf: Shelf, opener: Opener) -> None:
        size = min(self.large_file, 1 << 20)
        reader = Shelf(opener(), shelf.scratch)
        for number in range(_FILES_PER_WORKER):
            content = bytes([number + 1]) * size
            with _while_it_runs(lambda: shelf.put("c", str(number), content)) as running:  # noqa: B023
                while running():
                    try:
                        assert reader.get("c", str(number)) == content
                    except FileNotFoundError:
                        continue

    def test_a_checkpoint_is_whole_while_it_is_visible(self, shelf: Shelf, opener: Opener) -> None:
        files = dict.fromkeys([f"f{number}" for number in range(50)], shelf.file(b"x"))
        reader = opener()
        with _while_it_runs(lambda: det_storage.save_checkpoint(shelf.storage, "c", files, {})) as running:
            while running():
                if _is_visible(reader, "c"):
                    assert reader.list("c").keys() >= files.keys()
        with _while_it_runs(lambda: det_storage.delete_stored_files(shelf.storage, "c")) as running:
            while running():
                if not reader.list("c").keys() >= files.keys():
                    assert not _is_visible(reader, "c")
                if implements_stored(reader):
                    assert reader.stored().keys() <= {"c"}

    def _all_is_there(self, storage: StorageManager, workers: int) -> None:
        expected = {f"dir/{worker}/{number}" for worker in range(workers) for number in range(_FILES_PER_WORKER)}
        assert storage.list("shared").keys() == expected
        for worker in range(workers):
            assert len(storage.list(f"own-{worker}")) == _FILES_PER_WORKER


def _is_visible(storage: StorageManager, storage_id: str) -> bool:
    try:
        det_storage.find_checkpoint(storage, storage_id)
    except CheckpointNotFound:
        return False
    return True


@contextmanager
def _while_it_runs(action: Callable[[], object]) -> Iterator[Callable[[], bool]]:
    """Run an action in a thread, and yield a function that returns whether it is still running.

    An error of the action is raised at the end of the block.
    """
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(action)
        yield lambda: not job.done()
    job.result()
