"""Whole checkpoints in a real directory, which are visible only when complete and are verified when restored."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from det_core import storage
from det_core.errors import CheckpointCorrupt, CheckpointNotFound, StorageError
from det_core.storage.config import DirectoryConfig, SharedFSConfig
from det_core.storage.directory import DirectoryStorage


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "source"
    (directory / "sub dir" / "ünï").mkdir(parents=True)
    (directory / "empty").mkdir()
    (directory / "a+b%.bin").write_bytes(bytes(range(256)) * 5000)
    (directory / "sub dir" / "ünï" / "x").write_text("")
    return directory


def tree(directory: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() if path.is_file() else None
        for path in directory.rglob("*")
        if path.name != storage.METADATA_FILE
    }


def test_a_saved_checkpoint_is_restored_unchanged(store: DirectoryStorage, source: Path, tmp_path: Path) -> None:
    before = tree(source)
    resources = storage.save_checkpoint(
        store, "c1", storage.scan_directory(source), {"steps_completed": 3, "_det": "mine"}
    )
    assert resources["a+b%.bin"] == 1_280_000
    assert {name for name in resources if name.endswith("/")} == {"empty/", "sub dir/", "sub dir/ünï/"}
    assert store.list("c1").keys() == resources.keys() - {"sub dir/", "sub dir/ünï/"}
    storage.restore_checkpoint(store, "c1", tmp_path / "back")
    assert tree(tmp_path / "back") == before == tree(source)
    assert storage.read_checkpoint_metadata(store, "c1") == {"steps_completed": 3}


def test_a_selector_restores_only_what_it_accepts(store: DirectoryStorage, source: Path, tmp_path: Path) -> None:
    storage.save_checkpoint(store, "c1", storage.scan_directory(source), {})
    storage.restore_checkpoint(store, "c1", tmp_path / "back", selector=lambda path: path.startswith("sub"))
    assert set(tree(tmp_path / "back")) == {"sub dir", "sub dir/ünï", "sub dir/ünï/x"}


def test_a_file_with_the_name_of_the_manifest_is_refused(store: DirectoryStorage, source: Path, tmp_path: Path) -> None:
    own = source / storage.METADATA_FILE
    for content in ('{"mine": 1}', "[1]", "\xff"):
        own.write_text(content, encoding="latin-1")
        with pytest.raises(
            ValueError, match=r"cannot store .*source/metadata.json, because each checkpoint has a file"
        ):
            storage.scan_directory(source)
        assert own.name not in storage.scan_directory(source, lambda name: name != own.name)
    own.rename(source / "sub dir" / own.name)
    storage.save_checkpoint(store, "c1", storage.scan_directory(source), {"of": "c1"})
    storage.restore_checkpoint(store, "c1", tmp_path / "back")
    storage.save_checkpoint(store, "c2", storage.scan_directory(tmp_path / "back"), {"of": "c2"})
    assert storage.read_checkpoint_metadata(store, "c2") == {"of": "c2"}


def test_selectors_see_directories(store: DirectoryStorage, source: Path, tmp_path: Path) -> None:
    seen: list[str] = []

    def all_but(*excluded: str) -> Callable[[str], bool]:
        def selector(path: str) -> bool:
            seen.append(path)
            return path not in excluded

        return selector

    found = storage.scan_directory(source, all_but("sub dir/"))
    assert seen == ["a+b%.bin", "empty/", "sub dir/", "sub dir/ünï/", "sub dir/ünï/x"]
    assert found.keys() == {*seen} - {"sub dir/"}
    storage.save_checkpoint(store, "c1", found, {})
    before, seen[:] = [*seen], []
    storage.restore_checkpoint(store, "c1", tmp_path / "back", selector=all_but("a+b%.bin", "sub dir/ünï/x"))
    assert seen == before
    assert tree(tmp_path / "back") == {"empty": None, "sub dir": None, "sub dir/ünï": None}


def test_a_manifest_without_directories_that_have_contents_restores(
    store: DirectoryStorage, base: Path, source: Path, tmp_path: Path
) -> None:
    storage.save_checkpoint(store, "c1", storage.scan_directory(source), {})
    manifest = base / "c1" / storage.METADATA_FILE
    content = json.loads(manifest.read_text())
    for name in ("sub dir/", "sub dir/ünï/"):
        del content["_det"]["files"][name]
    manifest.chmod(0o600)
    manifest.write_text(json.dumps(content))
    storage.restore_checkpoint(store, "c1", tmp_path / "back")
    assert tree(tmp_path / "back") == tree(source)
    assert "sub dir/" in storage.find_checkpoint(store, "c1").names()


def test_a_checkpoint_without_metadata_json_is_not_found(store: DirectoryStorage, source: Path, tmp_path: Path) -> None:
    storage.save_checkpoint(store, "c1", storage.scan_directory(source), {})
    store.delete("c1", [storage.METADATA_FILE])
    for call in (
        lambda: storage.read_checkpoint_metadata(store, "c1"),
        lambda: storage.restore_checkpoint(store, "c1", tmp_path / "back"),
    ):
        with pytest.raises(CheckpointNotFound, match="c1"):
            call()


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_damage_is_found_and_the_file_is_named(
    store: DirectoryStorage, base: Path, source: Path, tmp_path: Path, damage: str
) -> None:
    storage.save_checkpoint(store, "c1", storage.scan_directory(source), {})
    victim = base / "c1" / "a+b%.bin"
    content = bytearray(victim.read_bytes())
    content[1000] ^= 1
    {
        "flip": lambda: victim.write_bytes(content),
        "truncate": lambda: victim.write_bytes(content[:99]),
        "remove": victim.unlink,
    }[damage]()
    with pytest.raises(CheckpointCorrupt, match=r"c1.*a\+b%"):
        storage.restore_checkpoint(store, "c1", tmp_path / "back")
    with pytest.raises(CheckpointCorrupt, match=r"c1.*a\+b%"):
        found = storage.find_checkpoint(store, "c1")
        found.link(found.names(), tmp_path / "links", base / "c1")


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        ("{", CheckpointCorrupt, "is damaged"),
        ("[]", CheckpointCorrupt, "is damaged"),
        ('{"_det": {"format": 1}}', CheckpointCorrupt, "is damaged"),
        ('{"_det": {"format": 2, "files": {}}}', StorageError, "has format 2.*upgrade"),
        ('{"_det": {"format": 1, "files": {"../evil": [1, "00000000"]}}}', CheckpointCorrupt, "outside the checkpoint"),
        (
            '{"_det": {"format": 1, "files": {"a\\u0000b": [1, "00000000"]}}}',
            CheckpointCorrupt,
            "outside the checkpoint",
        ),
        (
            '{"_det": {"format": 1, "files": {"a\\ud800b": [1, "00000000"]}}}',
            CheckpointCorrupt,
            "outside the checkpoint",
        ),
        ('{"_det": {"format": 1, "files": {"": [1, "00000000"]}}}', CheckpointCorrupt, "outside the checkpoint"),
        (
            '{"_det": {"format": 1, "files": {"a": [1e400, "00000000"]}}}',
            CheckpointCorrupt,
            "is damaged.*1e400|is damaged.*inf",
        ),
        ('{"_det": {"format": 1, "files": {"a": [NaN, "00000000"]}}}', CheckpointCorrupt, "is damaged"),
        ('{"_det": {"format": 1, "files": {"a": [-1, "00000000"]}}}', CheckpointCorrupt, "is damaged"),
        ('{"_det": {"format": 1, "files": {"a": [1.5, "00000000"]}}}', CheckpointCorrupt, "is damaged"),
        ('{"_det": {"format": 1, "files": {"a": [true, "00000000"]}}}', CheckpointCorrupt, "is damaged"),
        ('{"_det": {"format": 1, "files": {"a": ["1", "00000000"]}}}', CheckpointCorrupt, "is damaged"),
        ('{"_det": {"format": 1, "files": {"a": [1, 12345678]}}}', CheckpointCorrupt, "is damaged"),
        ('{"_det": {"format": 1, "files": {"a": [1, "ABCDEFGH"]}}}', CheckpointCorrupt, "is damaged"),
        ('{"_det": {"format": 1, "files": {"a": [1, null]}}}', CheckpointCorrupt, "is damaged"),
        ('{"_det": {"format": 1, "files": {"a": [1]}}}', CheckpointCorrupt, "is damaged"),
        ('{"_det": {"format": 1, "files": {"a": null}}}', CheckpointCorrupt, "is damaged"),
        ('{"_det": {"format": 1, "files": ["a"]}}', CheckpointCorrupt, "is damaged"),
        ('{"_det": {"format": 1, "files": null}}', CheckpointCorrupt, "is damaged"),
        ('{"_det": {"files": {}}}', CheckpointCorrupt, "is damaged"),
        ('{"_det": {"format": null, "files": {}}}', StorageError, "has format None"),
        ('{"_det": []}', CheckpointCorrupt, "is damaged"),
        ('{"_det": ""}', CheckpointCorrupt, "is damaged"),
        ('{"_det": 7}', CheckpointCorrupt, "is damaged"),
        ('"text"', CheckpointCorrupt, "is damaged"),
        ("null", CheckpointCorrupt, "is damaged"),
        ("7", CheckpointCorrupt, "is damaged"),
        ("", CheckpointCorrupt, "is damaged"),
        ("[" * 100_000, CheckpointCorrupt, "is damaged"),
        ('{"n": ' + "7" * 5000 + "}", CheckpointCorrupt, "is damaged"),
        ('{"_det": {"format": 1, "files": {"a": [%s, "00000000"]}}}' % (1 << 70), CheckpointCorrupt, "lacks a"),
    ],
)
def test_a_bad_manifest_is_refused(
    store: DirectoryStorage, base: Path, tmp_path: Path, content: str, kind: type[StorageError], message: str
) -> None:
    (base / "c1").mkdir(parents=True)
    (base / "c1" / storage.METADATA_FILE).write_text(content)
    with pytest.raises(StorageError, match=message) as caught:
        storage.restore_checkpoint(store, "c1", tmp_path / "back")
    assert type(caught.value) is kind  # a checkpoint of a newer release is not corrupt
    assert not (tmp_path / "evil").exists()
    assert storage.copied_from(base / "c1") is None


def test_a_checkpoint_of_the_original_restores_with_one_warning(
    store: DirectoryStorage, base: Path, tmp_path: Path
) -> None:
    (base / "old").mkdir(parents=True)
    (base / "old" / "model.pth").write_text("weights")
    (base / "old" / storage.METADATA_FILE).write_text(json.dumps({"steps_completed": 5}))
    with pytest.warns(UserWarning, match="no checksums"):
        storage.restore_checkpoint(store, "old", tmp_path / "back")
    assert (tmp_path / "back" / "model.pth").read_text() == "weights"


def test_a_failed_save_leaves_no_files(
    store: DirectoryStorage, base: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = DirectoryStorage.put

    def fail_on_the_last(self: DirectoryStorage, storage_id: str, path: str, origin: Path) -> None:
        if path.endswith("/x"):
            raise StorageError("disk full")
        put(self, storage_id, path, origin)

    monkeypatch.setattr(DirectoryStorage, "put", fail_on_the_last)
    with pytest.raises(StorageError, match="disk full"):
        storage.save_checkpoint(store, "c1", storage.scan_directory(source), {})
    assert not (base / "c1").exists()


def test_adopted_files_are_moved_unless_they_have_several_names(
    store: DirectoryStorage, base: Path, tmp_path: Path
) -> None:
    """A file that others also use must not become write-protected."""
    local = tmp_path / "local"
    local.mkdir()
    for name in ("alone", "linked", "twice"):
        (local / name).write_text(name)
    os.link(local / "linked", tmp_path / "other name")
    (local / "link").symlink_to("alone")
    files = {name: local / name for name in ("alone", "linked", "link")}
    files |= {"one": local / "twice", "two": local / "twice"}
    moved = {"alone": (local / "alone").stat().st_ino}
    entries = storage.adopt_files(store, "c1", files, base / "c1")
    assert {name: entry.size for name, entry in entries.items()} == {
        "alone": 5,
        "linked": 6,
        "link": 5,
        "one": 5,
        "two": 5,
    }
    assert {path.name: path.read_text() for path in (base / "c1").iterdir()} == {
        "alone": "alone",
        "linked": "linked",
        "link": "alone",
        "one": "twice",
        "two": "twice",
    }
    inodes = {path.name: path.stat().st_ino for path in (base / "c1").iterdir()}
    assert moved.items() <= inodes.items()
    assert inodes["linked"] != (tmp_path / "other name").stat().st_ino
    assert inodes["one"] != inodes["two"]
    assert not (local / "alone").exists()
    assert (base / "c1" / "alone").stat().st_mode & 0o222 == 0
    assert (tmp_path / "other name").stat().st_mode & 0o200


class LetsErrorsThrough(DirectoryStorage):
    """Store whose `put` does not turn errors of the operating system into StorageError."""

    rejected = ""

    def put(self, storage_id: str, path: str, source: Path) -> str | None:
        if path == self.rejected:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/mount/spool")
        return super().put(storage_id, path, source)


@pytest.mark.parametrize("rejected", ["a", "metadata.json", "check.txt"])
def test_an_error_of_the_operating_system_names_the_store(base: Path, tmp_path: Path, rejected: str) -> None:
    store = LetsErrorsThrough(DirectoryConfig(container_path=base))
    store.rejected = rejected
    (tmp_path / "a").touch()
    with pytest.raises(StorageError, match=r"\.LetsErrorsThrough could not store .*'/mount/spool'; check its options"):
        storage.save_checkpoint(store, "c", {"a": tmp_path / "a"}, {})
        storage.check_storage(store)


def test_delete_removes_everything_and_can_be_repeated(store: DirectoryStorage, base: Path, source: Path) -> None:
    storage.save_checkpoint(store, "c1", storage.scan_directory(source), {})
    storage.delete_stored_files(store, "c1")
    assert not list(base.glob("*"))
    storage.delete_stored_files(store, "c1")


def test_links_to_directories_are_followed(store: DirectoryStorage, source: Path, tmp_path: Path) -> None:
    (source / "empty" / "other").symlink_to("../sub dir")
    (source / "link").symlink_to(source / "empty")
    storage.save_checkpoint(store, "c1", storage.scan_directory(source), {})
    storage.restore_checkpoint(store, "c1", tmp_path / "back")
    assert (tmp_path / "back" / "link" / "other" / "ünï" / "x").is_file()
    assert not [path for path in (tmp_path / "back").rglob("*") if path.is_symlink()]


@pytest.mark.parametrize(
    ("link", "target", "message"),
    [
        ("empty/up", "..", r"empty/up, which is a link to .*/source, a directory above it"),
        ("empty/self", "../empty", r"empty/self, which is a link to .*/empty, a directory above it"),
        ("away", "../elsewhere", r"source/away, which is a link to .*/elsewhere, outside of .*/source;"),
        ("away", "../source-2", r"outside of"),
        ("loop", "loop", r"source/loop, which is a link to .* neither a file nor a directory"),
    ],
)
def test_links_that_cannot_be_followed_are_errors_that_name_them(
    source: Path, link: str, target: str, message: str
) -> None:
    for directory in ("elsewhere", "source-2"):
        (source.parent / directory).mkdir()
        (source.parent / directory / "x").touch()
    (source / link).symlink_to(target)
    with pytest.raises(ValueError, match=message):
        storage.scan_directory(source)
    assert set(storage.scan_directory(source, lambda path: path.rstrip("/") != link)) >= {"empty/", "a+b%.bin"}


def test_links_that_lead_to_each_other_are_an_error(source: Path) -> None:
    for one, other in ("ab", "ba"):
        (source / one).mkdir()
        (source / one / "link").symlink_to(f"../{other}")
    with pytest.raises(ValueError, match=r"/link, which is a link to .*/a, a directory above it"):
        storage.scan_directory(source)


def test_scan_rejects_dangling_links(source: Path) -> None:
    (source / "dangling").symlink_to("nowhere")
    with pytest.raises(ValueError, match="dangling"):
        storage.scan_directory(source)
    assert "dangling" not in storage.scan_directory(source, lambda path: path != "dangling")


@pytest.mark.parametrize("storage_id", ["../x", "a/b", "", "."])
def test_ids_cannot_leave_the_store(store: DirectoryStorage, storage_id: str) -> None:
    with pytest.raises(StorageError, match="not a checkpoint id"):
        store.list(storage_id)


def test_check_raises_an_error_if_a_store_cannot_be_used(tmp_path: Path) -> None:
    storage.check_storage(DirectoryStorage(DirectoryConfig(container_path=tmp_path / "new" / "deep")))
    assert not list((tmp_path / "new" / "deep").glob("*"))
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot write checkpoints under .*file.*choose another checkpoint_storage"):
        storage.check_storage(DirectoryStorage(DirectoryConfig(container_path=tmp_path / "file")))


@pytest.mark.parametrize(
    ("host_path", "storage_path", "expected"),
    [
        ("/mnt/x", None, "/mnt/x"),
        ("/mnt/x", "ckpt/a", "/mnt/x/ckpt/a"),
        ("/mnt/x", "/mnt/x/b", "/mnt/x/b"),
        ("/mnt/x", "../y", None),
        ("/mnt/x", "/etc", None),
        ("relative", None, None),
    ],
)
def test_shared_fs_stays_inside_host_path(host_path: str, storage_path: str | None, expected: str | None) -> None:
    given = {"host_path": host_path, "storage_path": storage_path}
    if expected is None:
        with pytest.raises(ValidationError, match="must be absolute|must stay inside"):
            SharedFSConfig.model_validate(given)
    else:
        assert SharedFSConfig.model_validate(given).base == Path(expected)


def test_container_path_is_relative_to_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert DirectoryConfig(container_path=Path("ckpt")).base == Path.cwd() / "ckpt"
