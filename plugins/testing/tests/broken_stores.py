"""Stores with one defect each, and the tests of the suite that catch it.

test_storage.py runs them.
"""

from __future__ import annotations

import shutil
import time
import unicodedata
import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote_plus

from det_core.errors import StorageError
from det_core.interfaces.storage import Progress, StorageManager
from det_core.storage import Entry
from det_core.storage.config import DirectoryConfig
from det_core.storage.directory import DirectoryStorage


class Sound(DirectoryStorage):
    """Base class of all stores here, without a defect."""

    def path(self, storage_id: str, path: str) -> Path:
        return self.local_path(storage_id) / path


class ReadsShort(Sound):
    def get(self, storage_id: str, path: str, target: Path) -> None:
        super().get(storage_id, path, target)
        target.write_bytes(target.read_bytes()[:4096])


class LosesTheLastPart(Sound):
    def get(self, storage_id: str, path: str, target: Path) -> None:
        super().get(storage_id, path, target)
        if target.stat().st_size > 8 << 20:
            with target.open("r+b") as file:
                file.truncate(8 << 20)


class ForgetsEmptyFiles(Sound):
    def put(self, storage_id: str, path: str, source: Path) -> str | None:
        return super().put(storage_id, path, source) if path.endswith("/") or source.stat().st_size else None


class NeverReplaces(Sound):
    def put(self, storage_id: str, path: str, source: Path) -> str | None:
        return None if self.path(storage_id, path).is_file() else super().put(storage_id, path, source)


class RemovesFirst(Sound):
    def put(self, storage_id: str, path: str, source: Path) -> str | None:
        self.delete(storage_id, [path])
        return super().put(storage_id, path, source)


class WritesInPlace(Sound):
    def put(self, storage_id: str, path: str, source: Path) -> str | None:
        if path.endswith("/"):
            return super().put(storage_id, path, source)
        target, content = self.path(storage_id, path), source.read_bytes()
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb", buffering=0) as file:
            file.write(content[:1])
            time.sleep(0.01)
            file.write(content[1:])
        return None


class SharesOneBuffer(Sound):
    def put(self, storage_id: str, path: str, source: Path) -> str | None:
        self._buffer = source
        time.sleep(0.001)
        return super().put(storage_id, path, self._buffer)


class LinksTheSource(Sound):
    def put(self, storage_id: str, path: str, source: Path) -> str | None:
        target = self.path(storage_id, path)
        if path.endswith("/"):
            return super().put(storage_id, path, source)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.hardlink_to(source)
        return None


class MovesTheSource(Sound):
    def put(self, storage_id: str, path: str, source: Path) -> str | None:
        crc = super().put(storage_id, path, source)
        if not path.endswith("/"):
            source.unlink()
        return crc


class GetsALink(Sound):
    def get(self, storage_id: str, path: str, target: Path) -> str | None:
        if not self.path(storage_id, path).is_file():
            raise FileNotFoundError(path)
        target.unlink(missing_ok=True)
        target.symlink_to(self.path(storage_id, path))
        return None


class EmptiesTheTarget(Sound):
    def get(self, storage_id: str, path: str, target: Path) -> str | None:
        if target.exists():
            target.write_bytes(b"")
        return super().get(storage_id, path, target)


class RemembersSizes(Sound):
    def __init__(self, config: DirectoryConfig) -> None:
        super().__init__(config)
        self._sizes: dict[tuple[str, str], int] = {}

    def list(self, storage_id: str) -> dict[str, int]:
        listed = super().list(storage_id)
        return {path: self._sizes.setdefault((storage_id, path), size) for path, size in listed.items()}


class GetsOverTheTarget(Sound):
    def get(self, storage_id: str, path: str, target: Path) -> None:
        content = self.path(storage_id, path).read_bytes()
        with target.open("r+b" if target.exists() else "wb") as file:
            file.write(content)


class OpensTheTargetFirst(Sound):
    def get(self, storage_id: str, path: str, target: Path) -> str | None:
        target.touch()
        return super().get(storage_id, path, target)


class LeavesTemporaries(Sound):
    def get(self, storage_id: str, path: str, target: Path) -> str | None:
        target.with_name("temporary").touch()
        return super().get(storage_id, path, target)


class NamesTargetsItself(Sound):
    def get(self, storage_id: str, path: str, target: Path) -> str | None:
        return super().get(storage_id, path, target.with_name(Path(path).name))


class InventsFiles(Sound):
    def get(self, storage_id: str, path: str, target: Path) -> str | None:
        try:
            return super().get(storage_id, path, target)
        except FileNotFoundError:
            target.write_bytes(b"{}")
            return None


class TellsAnotherChecksum(Sound):
    def get(self, storage_id: str, path: str, target: Path) -> str:
        super().get(storage_id, path, target)
        return f"{zlib.crc32(target.read_bytes()):08x}"


class TellsWhatItOnceStored(Sound):
    def __init__(self, config: DirectoryConfig) -> None:
        super().__init__(config)
        self._told: dict[tuple[str, str], str | None] = {}

    def put(self, storage_id: str, path: str, source: Path) -> str | None:
        crc = super().put(storage_id, path, source)
        return self._told.setdefault((storage_id, path), crc) and crc

    def get(self, storage_id: str, path: str, target: Path) -> str | None:
        super().get(storage_id, path, target)
        return self._told.get((storage_id, path))


class MistakesDamage(Sound):
    def __init__(self, config: DirectoryConfig) -> None:
        super().__init__(config)
        self._told: dict[tuple[str, str], str | None] = {}

    def put(self, storage_id: str, path: str, source: Path) -> str | None:
        crc = self._told[storage_id, path] = super().put(storage_id, path, source)
        return crc

    def get(self, storage_id: str, path: str, target: Path) -> str | None:
        crc = super().get(storage_id, path, target)
        if self._told[storage_id, path] != crc:
            raise StorageError(f"cannot read {path}")
        return crc


class ForgetsDirectories(Sound):
    def list(self, storage_id: str) -> dict[str, int]:
        return {path: size for path, size in super().list(storage_id).items() if not path.endswith("/")}


class FlattensDirectories(Sound):
    def put(self, storage_id: str, path: str, source: Path) -> str | None:
        return super().put(storage_id, path if path.endswith("/") else Path(path).name, source)


class TellsBlocks(Sound):
    def list(self, storage_id: str) -> dict[str, int]:
        return {path: -(-size // 4096) * 4096 for path, size in super().list(storage_id).items()}


class RaisesForUnknownIds(Sound):
    def list(self, storage_id: str) -> dict[str, int]:
        if not self.local_path(storage_id).exists():
            raise FileNotFoundError(storage_id)
        return super().list(storage_id)


class ListsByBarePrefix(Sound):
    def list(self, storage_id: str) -> dict[str, int]:
        listed: dict[str, int] = {}
        for directory in self._base.glob(f"{storage_id}*"):
            listed |= super().list(directory.name)
        return listed


class DeletesByBarePrefix(Sound):
    def delete(self, storage_id: str, paths: Sequence[str]) -> None:
        super().delete(storage_id, [name for name in self.list(storage_id) if name.startswith(tuple(paths))])


class RaisesOnMissing(Sound):
    def delete(self, storage_id: str, paths: Sequence[str]) -> None:
        for path in paths:
            if not self.path(storage_id, path).exists():
                raise FileNotFoundError(path)
        super().delete(storage_id, paths)


class NeverDeletes(Sound):
    def delete(self, storage_id: str, paths: Sequence[str]) -> None:
        pass


class DeletesByName(Sound):
    def delete(self, storage_id: str, paths: Sequence[str]) -> None:
        for path in sorted(set(paths)):
            super().delete(storage_id, [path])
            time.sleep(0.001)


class RemovesWhatSeemsEmpty(Sound):
    def delete(self, storage_id: str, paths: Sequence[str]) -> None:
        super().delete(storage_id, paths)
        if not self.list(storage_id):
            end = time.monotonic() + 0.05
            while not self.list(storage_id) and time.monotonic() < end:
                pass  # until somebody else stores a file
            shutil.rmtree(self.local_path(storage_id), ignore_errors=True)


class ListsOnePage(Sound):
    def list(self, storage_id: str) -> dict[str, int]:
        return dict(sorted(super().list(storage_id).items())[:1000])


class ListsWhatItPut(Sound):
    def __init__(self, config: DirectoryConfig) -> None:
        super().__init__(config)
        self._known: set[str] = set()

    def put(self, storage_id: str, path: str, source: Path) -> str | None:
        self._known.add(path)
        return super().put(storage_id, path, source)

    def list(self, storage_id: str) -> dict[str, int]:
        return {path: size for path, size in super().list(storage_id).items() if path in self._known}


class DecodesNames(Sound):
    def list(self, storage_id: str) -> dict[str, int]:
        return {unquote_plus(path): size for path, size in super().list(storage_id).items()}


class FoldsNames(Sound):
    def _file(self, storage_id: str, path: str) -> str:
        return super()._file(storage_id, unicodedata.normalize("NFC", path).casefold())


class BreaksLines(Sound):
    def list(self, storage_id: str) -> dict[str, int]:
        return {path.split("\n")[0]: size for path, size in super().list(storage_id).items()}


class CutsNames(Sound):
    def _file(self, storage_id: str, path: str) -> str:
        return super()._file(storage_id, path[:200])


class ReturnsOnlyFirstEntry(Sound):
    def put_files(self, storage_id: str, files: Mapping[str, Path]) -> dict[str, Entry]:
        return dict(list(super().put_files(storage_id, files).items())[:1])


class AbortsStoredFiles(Sound):
    def abort_uploads(self, storage_id: str, selected: Callable[[str], bool]) -> None:
        self.delete(storage_id, [path for path in self.list(storage_id) if selected(path)])


class TellsLocalTimes(Sound):
    def stored(self) -> dict[str, datetime]:
        return {storage_id: time.replace(tzinfo=None) for storage_id, time in super().stored().items()}


class TellsOtherTimes(Sound):
    def stored(self) -> dict[str, datetime]:
        one_hour = timezone(timedelta(hours=1))
        return {storage_id: time.replace(tzinfo=one_hour) for storage_id, time in super().stored().items()}


class TellsThePresent(Sound):
    def stored(self) -> dict[str, datetime]:
        return dict.fromkeys(super().stored(), datetime.now(timezone.utc))


class TellsTheFirstWrite(Sound):
    first: ClassVar[dict[Path, datetime]] = {}

    def stored(self) -> dict[str, datetime]:
        times = super().stored()
        return {
            storage_id: self.first.setdefault(self.local_path(storage_id), times[storage_id]) for storage_id in times
        }


class RemembersIds(Sound):
    def stored(self) -> dict[str, datetime]:
        (self._base / "gone").mkdir(parents=True, exist_ok=True)
        return super().stored()


class LocatesAllAlike(Sound):
    def location(self, storage_id: str) -> str:
        return self._base.as_uri()


class RetriesElsewhere(Sound):
    def with_few_retries(self) -> StorageManager:
        return type(self)(DirectoryConfig(container_path=self._base / "impatient"))


class LosesProgress(Sound):
    def get_files(
        self, storage_id: str, files: Mapping[str, tuple[Path, int]], progress: Progress | None = None
    ) -> dict[str, Entry]:
        return super().get_files(storage_id, files)


class LivesElsewhere(Sound):
    def local_path(self, storage_id: str) -> Path:
        return super().local_path(storage_id) / "files"

    def _file(self, storage_id: str, path: str) -> str:
        return f"{self._base}/{storage_id}/{path}"


class ShowsRawErrors(Sound):
    def put(self, storage_id: str, path: str, source: Path) -> str | None:
        if not self._base.parent.is_dir():
            raise NotADirectoryError(self._base)
        return super().put(storage_id, path, source)


CAUGHT_BY: dict[type[Sound], list[str]] = {
    ReadsShort: ["what_is_put_is_got", "a_saved_checkpoint_restores"],
    LosesTheLastPart: ["a_large_file_is_stored_and_got"],
    ForgetsEmptyFiles: ["an_empty_file_is_stored"],
    NeverReplaces: ["put_replaces_what_is_there"],
    RemovesFirst: ["a_put_that_fails_keeps_what_was_there"],
    WritesInPlace: ["a_file_appears_whole"],
    SharesOneBuffer: ["threads_do_not_disturb_each_other"],
    LinksTheSource: ["stored_files_are_copies"],
    MovesTheSource: ["stored_files_are_copies"],
    GetsALink: ["stored_files_are_copies"],
    EmptiesTheTarget: ["what_is_missing_is_not_found[missing]"],
    RemembersSizes: ["put_replaces_what_is_there"],
    GetsOverTheTarget: ["get_replaces_the_target"],
    OpensTheTargetFirst: ["what_is_missing_is_not_found[missing]"],
    LeavesTemporaries: ["get_writes_nothing_but_its_target"],
    NamesTargetsItself: ["a_selector_fetches_only_what_it_accepts"],
    InventsFiles: ["a_checkpoint_is_invisible_until_it_is_whole"],
    TellsAnotherChecksum: ["checksums_are_right_where_they_are_told"],
    TellsWhatItOnceStored: ["damage_is_found[flipped]"],
    MistakesDamage: ["damage_of_the_medium_is_found[flipped]"],
    ForgetsDirectories: [
        "empty_directories_are_stored_and_removed",
        "a_checkpoint_of_the_original_restores_with_one_warning",
    ],
    FlattensDirectories: ["nested_files_keep_their_paths"],
    TellsBlocks: ["list_tells_sizes"],
    RaisesForUnknownIds: ["an_unknown_id_is_empty"],
    ListsByBarePrefix: ["ids_that_begin_alike_are_apart"],
    DeletesByBarePrefix: ["paths_that_begin_alike_are_apart"],
    RaisesOnMissing: ["delete_of_what_is_missing_is_no_error"],
    NeverDeletes: [
        "a_deleted_checkpoint_is_gone",
        "a_file_that_vanished_makes_no_checkpoint",
        "a_file_that_changes_makes_no_checkpoint",
        "a_lost_file_is_found",
        "check_succeeds_and_leaves_nothing",
    ],
    DeletesByName: ["a_checkpoint_is_whole_while_it_is_visible"],
    RemovesWhatSeemsEmpty: ["put_and_delete_side_by_side"],
    ReturnsOnlyFirstEntry: ["many_files_are_put_and_got_at_once"],
    AbortsStoredFiles: ["stored_files_are_no_remains_of_uploads"],
    ListsOnePage: ["more_files_than_one_page_are_listed_and_deleted"],
    ListsWhatItPut: ["two_managers_see_each_other", "processes_do_not_disturb_each_other"],
    DecodesNames: ["odd_names_are_kept_and_apart"],
    FoldsNames: ["odd_names_are_kept_and_apart"],
    BreaksLines: ["a_line_end_in_a_name_is_kept"],
    CutsNames: ["long_names_are_kept[n]"],
    TellsLocalTimes: ["stored_tells_ids_and_times"],
    TellsOtherTimes: ["stored_tells_ids_and_times"],
    TellsThePresent: ["stored_tells_ids_and_times"],
    TellsTheFirstWrite: ["stored_tells_ids_and_times"],
    RemembersIds: ["stored_tells_ids_and_times"],
    LocatesAllAlike: ["each_checkpoint_has_a_location_of_its_own_or_none"],
    RetriesElsewhere: ["a_client_with_few_retries_uses_the_same_store"],
    LosesProgress: ["many_files_are_put_and_got_at_once"],
    LivesElsewhere: ["a_local_path_holds_the_files"],
    ShowsRawErrors: ["a_store_that_cannot_be_used_says_so"],
}
