"""Tests of the methods of a store on single files."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from time import monotonic, sleep

import pytest

from det_core import storage as det_storage
from det_core.errors import StorageError
from det_core.interfaces.storage import StorageManager
from det_testing.storage._store_suite import Opener, Shelf, StoreSuite, implements_stored

_CLOCKS_DIFFER = timedelta(minutes=1)
"""Maximum difference between the clocks of this host and the store."""
_CLOCK_TICK = 3.0
"""Number of seconds within which the clock of the store shows another time."""
_ONE_PAGE = 1000
"""Maximum number of entries in one page of an object store's listing."""
CONTENT = bytes(range(256)) * 40


class StoreFileTests(StoreSuite):
    """Tests of put, get, list, delete and stored."""

    def test_what_is_put_is_got(self, shelf: Shelf) -> None:
        shelf.put("c", "state.pth", CONTENT)
        assert shelf.get("c", "state.pth") == CONTENT

    def test_an_empty_file_is_stored(self, shelf: Shelf) -> None:
        shelf.put("c", "empty", b"")
        assert shelf.get_all("c") == {"empty": b""}

    def test_put_replaces_what_is_there(self, shelf: Shelf) -> None:
        for content in (b"first and long", b"second", b""):
            shelf.put("c", "a", content)
            assert shelf.get_all("c") == {"a": content}
            assert not self.exact_sizes or shelf.storage.list("c") == {"a": len(content)}

    def test_a_put_that_fails_keeps_what_was_there(self, shelf: Shelf) -> None:
        shelf.put("c", "a", b"first")
        with pytest.raises((OSError, StorageError)):
            shelf.storage.put("c", "a", shelf.scratch / "missing")
        with pytest.raises((OSError, StorageError)):
            shelf.storage.put("c", "b", shelf.scratch / "missing")
        assert shelf.get_all("c") == {"a": b"first"}

    def test_stored_files_are_copies(self, shelf: Shelf) -> None:
        source, target = shelf.file(b"stored"), shelf.scratch / "target"
        shelf.storage.put("c", "a", source)
        assert source.read_bytes() == b"stored"
        source.write_bytes(b"changed afterwards")
        shelf.storage.get("c", "a", target)
        target.write_bytes(b"changed by its reader")
        assert shelf.get("c", "a") == b"stored"

    def test_get_replaces_the_target(self, shelf: Shelf) -> None:
        target = shelf.file(b"what was there before, and longer")
        shelf.put("c", "a", b"stored")
        shelf.storage.get("c", "a", target)
        assert target.read_bytes() == b"stored"

    def test_checksums_are_right_where_they_are_told(self, shelf: Shelf) -> None:
        for content in (b"", b"1", CONTENT):
            source, target = shelf.file(content), shelf.file(b"")
            expected = (None, det_storage.checksum_file(source).crc32c)
            assert shelf.storage.put("c", "a", source) in expected
            assert shelf.storage.get("c", "a", target) in expected

    def test_empty_directories_are_stored_and_removed(self, shelf: Shelf) -> None:
        for path in ("logs/", "deep/er/"):
            shelf.storage.put("c", path, shelf.scratch / "ignored")
        shelf.put("c", "a", b"x")
        assert shelf.storage.list("c").keys() == {"logs/", "deep/er/", "a"}
        assert shelf.storage.list("c")["logs/"] == 0
        shelf.storage.delete("c", ["logs/"])
        assert shelf.storage.list("c").keys() == {"deep/er/", "a"}

    def test_nested_files_keep_their_paths(self, shelf: Shelf) -> None:
        contents = {path: path.encode() for path in ("a/b/c/d/e", "a/b/x", "a/y", "z", "sub/metadata.json")}
        shelf.put_all("c", contents)
        assert shelf.get_all("c") == contents

    def test_list_tells_sizes(self, shelf: Shelf) -> None:
        sizes = {"nothing": 0, "one": 1, "more": 4097, "sub/dir": 10_000}
        shelf.put_all("c", {path: bytes(size) for path, size in sizes.items()})
        listed = shelf.storage.list("c")
        assert listed.keys() == sizes.keys()
        assert all(isinstance(size, int) for size in listed.values())
        if self.exact_sizes:
            assert listed == sizes

    def test_an_unknown_id_is_empty(self, storage: StorageManager) -> None:
        assert storage.list("nobody-stored-this") == {}

    def test_ids_that_begin_alike_are_apart(self, shelf: Shelf) -> None:
        ids = ("c1", "c", "c10", "c1-x", "c1_")
        for storage_id in ids:
            shelf.put(storage_id, "a", storage_id.encode())
        assert {one: shelf.get_all(one) for one in ids} == {one: {"a": one.encode()} for one in ids}
        det_storage.delete_stored_files(shelf.storage, "c1")
        assert [one for one in ids if shelf.storage.list(one)] == ["c", "c10", "c1-x", "c1_"]

    def test_paths_that_begin_alike_are_apart(self, shelf: Shelf) -> None:
        contents = {path: path.encode() for path in ("a", "ab", "a.b", "a-b/a", "b/a", "b/ab")}
        shelf.put_all("c", contents)
        shelf.storage.delete("c", ["a", "b/a"])
        assert shelf.get_all("c") == {path: contents[path] for path in ("ab", "a.b", "a-b/a", "b/ab")}

    @pytest.mark.parametrize("path", ["missing", "di", "dir", "dir/missing", "a/b", "A"])
    def test_what_is_missing_is_not_found(self, shelf: Shelf, path: str) -> None:
        shelf.put_all("c", {"a": b"x", "dir/a": b"x"})
        target, existing = shelf.scratch / "target", shelf.file(b"as before")
        for storage_id in ("c", "nobody-stored-this"):
            for file in (target, existing):
                with pytest.raises(FileNotFoundError):
                    shelf.storage.get(storage_id, path, file)
            assert not target.exists()
            assert existing.read_bytes() == b"as before"

    def test_get_writes_nothing_but_its_target(self, shelf: Shelf) -> None:
        shelf.put("c", "a", b"x")
        directory = shelf.scratch / "alone"
        directory.mkdir()
        shelf.storage.get("c", "a", directory / "target")
        assert [path.name for path in directory.iterdir()] == ["target"]

    def test_delete_of_what_is_missing_is_no_error(self, shelf: Shelf) -> None:
        shelf.put_all("c", {"a": b"x", "b": b"y"})
        for _ in range(2):
            shelf.storage.delete("c", ["missing", "a", "no/such/dir/"])
            assert shelf.get_all("c") == {"b": b"y"}
        shelf.storage.delete("nobody-stored-this", ["a"])
        shelf.storage.delete("c", [])
        assert shelf.get_all("c") == {"b": b"y"}

    def test_a_large_file_is_stored_and_got(self, shelf: Shelf) -> None:
        source = shelf.file(os.urandom(self.large_file))
        expected, target = det_storage.checksum_file(source), shelf.scratch / "target"
        assert shelf.storage.put("c", "large", source) in (None, expected.crc32c)
        assert not self.exact_sizes or shelf.storage.list("c") == {"large": self.large_file}
        assert shelf.storage.get("c", "large", target) in (None, expected.crc32c)
        assert det_storage.checksum_file(target) == expected

    def test_many_files_are_put_and_got_at_once(self, shelf: Shelf) -> None:
        contents = {f"{number % 3}/{number}": CONTENT[:number] for number in range(20)}
        files = shelf.files({**contents, "logs/": b""})
        expected = {path: det_storage.checksum_file(files[path]) for path in contents}
        assert shelf.storage.put_files("c", files) == {**expected, "logs/": det_storage.Entry(0, "00000000")}
        targets = {path: (shelf.scratch / f"target{len(data)}", len(data)) for path, data in contents.items()}
        moved: list[int] = []
        assert shelf.storage.get_files("c", targets, moved.append) == expected
        assert {path: target.read_bytes() for path, (target, _) in targets.items()} == contents
        assert sum(moved) == sum(map(len, contents.values()))
        target, size = targets["1/1"]
        assert shelf.storage.get_files("c", {"1/10": (target, size)})["1/10"] != expected["1/1"]
        with pytest.raises(FileNotFoundError, match="^missing$"):
            shelf.storage.get_files("c", {"missing": (target, size)})
        assert shelf.storage.put_files("c", {}) == shelf.storage.get_files("c", {}) == {}

    def test_stored_files_are_no_remains_of_uploads(self, shelf: Shelf) -> None:
        shelf.put_all("c", {"a": b"x", "dir/b": CONTENT})
        shelf.storage.abort_uploads("c", lambda path: True)
        assert shelf.get_all("c") == {"a": b"x", "dir/b": CONTENT}

    def test_more_files_than_one_page_are_listed_and_deleted(self, shelf: Shelf) -> None:
        source = shelf.file(b"tiny")
        names = {f"{number % 3}/{number}" for number in range(_ONE_PAGE + 100)}
        shelf.storage.put_files("c", dict.fromkeys(names, source))
        assert shelf.storage.list("c").keys() == names
        shelf.storage.delete("c", sorted(names))
        assert shelf.storage.list("c") == {}

    def test_stored_tells_ids_and_times(self, shelf: Shelf) -> None:
        if not implements_stored(shelf.storage):
            pytest.skip("this store does not implement `stored`")
        assert shelf.storage.stored() == {}
        begin = datetime.now(timezone.utc)
        for storage_id in ("c1", "c10", "gone"):
            shelf.put_all(storage_id, {"a": b"x", "dir/b": b"y"})
        shelf.storage.delete("gone", ["a", "dir/b"])
        times = shelf.storage.stored()
        assert times.keys() == {"c1", "c10"}
        for time in times.values():
            assert begin - _CLOCKS_DIFFER < time < datetime.now(timezone.utc) + _CLOCKS_DIFFER
        assert shelf.storage.stored() == times
        deadline = monotonic() + _CLOCK_TICK
        while shelf.storage.stored()["c1"] == times["c1"]:  # the time of the first write, or a clock of whole seconds
            assert monotonic() < deadline, "a later write does not change the time"
            sleep(0.02)
            shelf.put("c1", "later", b"z")

    def test_each_checkpoint_has_a_location_of_its_own_or_none(self, storage: StorageManager) -> None:
        first, second = storage.location("c1"), storage.location("c10")
        assert isinstance(first, str) and isinstance(second, str)
        assert first != second or first == ""

    def test_a_client_with_few_retries_uses_the_same_store(self, shelf: Shelf) -> None:
        shelf.put("c", "a", b"x")
        impatient = Shelf(shelf.storage.with_few_retries(), shelf.scratch)
        assert impatient.get_all("c") == {"a": b"x"}
        impatient.put("c", "b", b"y")
        assert shelf.get_all("c") == {"a": b"x", "b": b"y"}

    def test_a_local_path_holds_the_files(self, shelf: Shelf) -> None:
        directory = shelf.storage.local_path("c")
        if directory is None:
            pytest.skip("users cannot read this store in place")
        contents = {"a": b"x", "dir/b": CONTENT}
        shelf.put_all("c", contents)
        assert {path: Path(directory, path).read_bytes() for path in contents} == contents

    def test_a_store_that_cannot_be_used_says_so(self, broken: Opener, tmp_path: Path) -> None:
        shelf = Shelf(broken(), tmp_path)
        with pytest.raises(StorageError):
            shelf.put("c", "a", b"x")
        with pytest.raises(StorageError):
            det_storage.check_storage(shelf.storage)
        with suppress(StorageError, FileNotFoundError):  # other errors are not allowed
            shelf.get("c", "a")
        with suppress(StorageError):
            assert shelf.storage.list("c") == {}
        with suppress(StorageError):
            shelf.storage.delete("c", ["a"])
