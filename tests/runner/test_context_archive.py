"""Packing and unpacking of context directories."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from det_core.config import parse_config
from det_core.core import context_dir
from det_core.core.context_dir import context_files
from det_core.errors import DetError
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.launch import context_archive
from det_core.launch.context_archive import open_archive, pack_context_dir, unpack_context_dir
from det_core.runner import ExperimentRunner, submit_experiment

CONFIG = {
    "entrypoint": "test -f train.py",
    "searcher": {"name": "single", "metric": "loss"},
    "max_restarts": 0,
}


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A context directory with one script."""
    directory = tmp_path / "code"
    write(directory / "train.py", "train")
    return directory


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def link(path: Path, target: str | Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def unpacked(code: Path, tmp_path: Path) -> dict[str, str]:
    """Return the texts of the files that a runner would unpack, by name."""
    copy = tmp_path / "copy"
    copy.mkdir()
    unpack_context_dir(pack_context_dir(code), copy)
    assert not [path for path in copy.rglob("*") if path.is_symlink()]
    return {str(path.relative_to(copy)): path.read_text() for path in copy.rglob("*") if path.is_file()}


def test_links_to_files_become_files(code: Path, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "shared.py", "shared")
    link(code / "inside.py", "train.py")
    link(code / "absolute.py", tmp_path / "elsewhere" / "shared.py")
    link(code / "package" / "relative.py", "../../elsewhere/shared.py")
    link(code / "dangling.py", "nowhere")
    link(code / "itself.py", "itself.py")
    assert unpacked(code, tmp_path) == {
        "train.py": "train",
        "inside.py": "train",
        "absolute.py": "shared",
        "package/relative.py": "shared",
    }


def test_links_to_directories_become_directories(code: Path, tmp_path: Path) -> None:
    write(tmp_path / "library" / "part" / "a.py", "a")
    link(code / "library", tmp_path / "library")
    link(code / "part", "library/part")
    assert unpacked(code, tmp_path) == {"train.py": "train", "library/part/a.py": "a", "part/a.py": "a"}


def test_code_that_could_not_be_unpacked_is_not_packed(code: Path) -> None:
    write(code / ("a/" * 100 + "x"), "")
    unpack_context_dir(pack_context_dir(code), code)
    write(code / ("a/" * 101 + "x"), "")
    with pytest.raises(DetError, match="a/a/.* is nested more than 100 levels deep; list it in its file .detignore"):
        pack_context_dir(code)


def test_circular_links_are_not_followed_forever(code: Path, tmp_path: Path) -> None:
    write(tmp_path / "library" / "a.py", "a")
    link(code / "here", ".")
    link(code / "up", "..")
    link(code / "library", tmp_path / "library")
    link(tmp_path / "library" / "back", code)
    link(tmp_path / "library" / "again", "../library")
    link(tmp_path / "entrance", code)
    (code / ".detignore").write_text("up\n")
    expected = {".detignore": "up\n", "train.py": "train", "library/a.py": "a"}
    assert unpacked(tmp_path / "entrance", tmp_path) == expected


def test_links_that_lead_to_too_many_files_are_refused(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of twenty directories with two links each to the next one, there would be a million paths."""
    monkeypatch.setattr(context_dir, "_MOST_ENTRIES", 1000)
    for level in range(20):
        (code / f"{level}").mkdir()
        for name in ("one", "other"):
            link(code / f"{level}" / name, f"../{level + 1}")
    with pytest.raises(DetError, match=r"has more than 1000 files and directories, .* list data and .* \.detignore"):
        pack_context_dir(code)
    (code / ".detignore").write_text("[0-9]*\n")
    assert unpacked(code, tmp_path) == {".detignore": "[0-9]*\n", "train.py": "train"}


def test_hard_links_become_separate_files(code: Path, tmp_path: Path) -> None:
    os.link(code / "train.py", code / "again.py")
    assert unpacked(code, tmp_path) == {"train.py": "train", "again.py": "train"}


def test_secrets_are_hidden_behind_links_too(code: Path, tmp_path: Path) -> None:
    write(tmp_path / "const.yaml", "key: hunter2\r\n")
    link(code / "linked.yaml", tmp_path / "const.yaml")
    link(code / "config", "linked.yaml")
    (tmp_path / "copy").mkdir()
    unpack_context_dir(pack_context_dir(code, lambda text: text.replace("hunter2", "reference")), tmp_path / "copy")
    for name in ("linked.yaml", "config"):
        assert (tmp_path / "copy" / name).read_bytes() == b"key: reference\r\n"


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ("", {"data/a.bin", "data/deep/b.bin", "keep/.cache/c", "train.py"}),
        ("data/", {"keep/.cache/c", "train.py"}),
        ("/data\n.cache", {"train.py"}),
        ("*.bin\n# a remark", {"keep/.cache/c", "train.py"}),
        ("*\n!*.py\n!b.bin", {"train.py", "data/deep/b.bin"}),
    ],
)
def test_files_in_detignore_are_left_out(code: Path, patterns: str, expected: set[str]) -> None:
    for name in ("data/a.bin", "data/deep/b.bin", "keep/.cache/c", "__pycache__/x.pyc", "sub/.git/HEAD", ".venv/x"):
        write(code / name, "")
    (code / ".detignore").write_text(patterns)
    names = list(context_files(code))
    assert names == sorted(names)
    assert set(names) - {".detignore"} == expected


def test_names_in_detignore_may_have_any_bytes(code: Path) -> None:
    (code / ".detignore").write_bytes(b"\xff.bin\n")
    (code / os.fsdecode(b"\xff.bin")).touch()
    assert os.fsdecode(b"\xff.bin") not in context_files(code)


def test_an_ignored_directory_is_not_read(code: Path, tmp_path: Path) -> None:
    link(code / "data", tmp_path / "data")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").touch()
    (code / ".detignore").write_text("data\n")
    seen: list[Path] = []
    iterdir = Path.iterdir
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "iterdir", lambda path: seen.append(path) or iterdir(path))  # type: ignore[func-returns-value]
        assert list(context_files(code)) == [".detignore", "train.py"]
    assert seen == [code]


def test_det_home_in_the_context_directory_is_left_out(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = code / "out" / "det"
    write(home / "checkpoints" / "uuid" / "weights", "")
    write(home / "det.db", "")
    write(code / "out" / "notes.txt", "")
    link(code / "record.db", home / "det.db")
    link(code / "checkpoints", home / "checkpoints")
    monkeypatch.setenv("DET_HOME", str(home))
    assert list(context_files(code)) == ["out/notes.txt", "train.py"]


def test_code_below_det_home_is_packed(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", str(code.parent))
    write(code / "sub" / "a.py", "")
    assert list(context_files(code)) == ["sub/a.py", "train.py"]


def test_det_home_as_the_context_directory_is_refused(
    store: TrackingStore, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link(tmp_path / "entrance", code)
    monkeypatch.setenv("DET_HOME", str(tmp_path / "entrance"))
    with pytest.raises(DetError, match=r"code' is DET_HOME, where det keeps its own data; give a directory that"):
        submit_experiment(store, parse_config(CONFIG), code)
    assert store.experiments() == []


def archive(*members: tarfile.TarInfo) -> bytes:
    """Return a foreign archive of files that are filled with zeros."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        for member in members:
            made.addfile(member, io.BytesIO(bytes(member.size)))
    return buffer.getvalue()


def member(name: str, *, size: int = 0, kind: bytes = tarfile.REGTYPE, target: str = "", **pax: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname, info.pax_headers = size, kind, target, pax
    return info


def extended(content: bytes, size: int | None = None, kind: bytes = tarfile.XHDTYPE) -> bytes:
    """Return an archive whose first header has this content, and claims this size of it."""
    header = member("x", size=len(content) if size is None else size, kind=kind)
    return gzip.compress(
        header.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512) + member("a").tobuf() + bytes(1024)
    )


SPARSE = {"GNU.sparse.map": "0,0", "GNU.sparse.size": str(1 << 50)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "compressed data are truncated"),
        (b"code", "[Nn]ot a gzip"),
        (archive(member("a", size=1000))[:-30], "compressed data are truncated"),
        (archive(member("a")) + gzip.compress(b""), "other data follow its compressed data"),
        (gzip.compress(b"code" * 1000), "invalid header|truncated header|bad checksum"),
        (gzip.compress(gzip.decompress(archive(member("a", size=4000)))[:2000]), "unexpected end"),
        (archive(member("../evil")), "outside the destination"),
        (archive(member("/evil")), None),
        (archive(member("evil", kind=tarfile.SYMTYPE, target="/etc/passwd")), "'evil' is neither a file nor"),
        (archive(member("evil", kind=tarfile.LNKTYPE, target="evil")), "'evil' is neither a file nor"),
        (archive(member("evil", kind=tarfile.FIFOTYPE)), "'evil' is neither a file nor"),
        (archive(member("evil", kind=tarfile.CHRTYPE)), "'evil' is neither a file nor"),
        (archive(member("evil", **SPARSE)), "an extended header with b'22 GNU.sparse.map=0,0.*; expected only records"),
        (archive(member("evil", kind=tarfile.GNUTYPE_SPARSE)), "it has a sparse file"),
        (archive(member("evil", path="e\0vil")), "null byte"),
        (archive(member("evil", mtime="1e300")), "out of range"),
        *(
            (gzip.compress(member("evil", size=-1536).tobuf(kind) + bytes(1024)), "evil has a negative size")
            for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
        ),
        (archive(member("evil/" * 1500)), "evil/evil/.* is nested more than 100 levels deep"),
        (gzip.compress(member("x", kind=tarfile.XGLTYPE).tobuf() * 5000), "its headers are malformed: max"),
        (extended(b"1" * 60_000), "an extended header of 60000 bytes; expected at most 10240"),
        (extended(b"e/" * 6000, kind=tarfile.GNUTYPE_LONGNAME), "an extended header of 12000 bytes; expected at most"),
        (extended(b"", size=-512), "its headers are malformed: invalid literal"),
        (extended(b"2 2 2 2 a=b\n"), "an extended header with b'2 2 2 2 a=b"),
        (extended(b"7 path=a\n"), "an extended header with b'7 path=a"),
        (extended(b"99 path=a\n"), "an extended header with b'99 path=a"),
        (extended(b"9 path=a\n9 other=b\n", size=9), "an extended header with b'9 other=b"),
    ],
)
def test_foreign_archives_write_nothing_outside_the_target(content: bytes, message: str | None, tmp_path: Path) -> None:
    (tmp_path / "a" / "copy").mkdir(parents=True)
    if message is None:
        unpack_context_dir(content, tmp_path / "a" / "copy")
    else:
        with pytest.raises(DetError, match=rf"code cannot be unpacked into .*copy: .*({message})"):
            unpack_context_dir(content, tmp_path / "a" / "copy")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["copy"]
    assert not Path("/evil").exists()


def test_numbers_in_extended_headers_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some releases of Python read them in quadratic time, during which no other thread runs."""
    monkeypatch.setattr(context_archive, "_MOST_DIGITS", 30_000)
    one = member("1" * 120)
    with open_archive(archive(one, one)) as opened:
        assert len(opened.getmembers()) == 2
    with pytest.raises(tarfile.ReadError, match="extended headers have too many long numbers"):
        open_archive(archive(one, one, one)).getmembers()


def test_records_in_extended_headers_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_archive, "_MOST_RECORDS", 1000)
    with open_archive(extended(b"8 uid=1\n" * 1000)) as opened:
        assert [one.name for one in opened.getmembers()] == ["a"]
    with pytest.raises(tarfile.ReadError, match="its extended headers have more than 1000 records"):
        open_archive(extended(b"8 uid=1\n" * 1001)).getmembers()


def test_the_number_of_extended_headers_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_archive, "MAX_CONTEXT_FILES", 1)
    header = member("x", kind=tarfile.XHDTYPE).tobuf()
    with pytest.raises(tarfile.ReadError, match="it has more than 2 extended headers"):
        open_archive(gzip.compress(header * 3 + member("a").tobuf()))


def test_paths_of_any_length_and_bytes_are_packed(code: Path, tmp_path: Path) -> None:
    deep = "/".join(["d" * 200] * ((4090 - len(str(code))) // 201))
    names = {f"{deep[: -len('/a.py')]}/a.py", "1" * 255, "a\nb", os.fsdecode(b"\xff" * 200)}
    for name in names:
        write(code / name, "")
    assert set(unpacked(code, tmp_path)) == {*names, "train.py"}


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_paths_of_foreign_archives_are_read(form: int) -> None:
    long = "p/" * 2047
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=form) as made:
        made.addfile(member(f"{long}a", kind=tarfile.SYMTYPE, target=f"{long}b"))
    with open_archive(buffer.getvalue()) as opened:
        assert [(one.name, one.linkname) for one in opened] == [(f"{long}a", f"{long}b")]


@pytest.mark.parametrize("kind", ["file", "names"])
def test_an_archive_that_unpacks_to_more_than_the_limit_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context_archive, "_ARCHIVE_LIMIT", 1 << 20)
    many = [member("bomb", size=2 << 20)] if kind == "file" else [member(f"{number}") for number in range(3000)]
    bomb = archive(*many)
    assert len(bomb) < 1 << 16
    with pytest.raises(DetError, match="holds more than 1 MiB"):
        unpack_context_dir(bomb, tmp_path)
    assert not list(tmp_path.glob("[b0]*"))


def test_an_archive_has_a_bounded_number_of_members(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those beyond the limit are not looked at."""
    monkeypatch.setattr(context_archive, "MAX_CONTEXT_FILES", 3)
    for name in ("a", "b"):
        write(code / name, "")
    assert unpacked(code, tmp_path) == {"train.py": "train", "a": "", "b": ""}
    write(code / "c", "")
    with pytest.raises(DetError, match=r"has 4 files, the limit is 3; list data and outputs in its .*\.detignore"):
        pack_context_dir(code)
    many = archive(*(member(f"{number}/", kind=tarfile.DIRTYPE) for number in range(4)))
    damaged = gzip.compress(gzip.decompress(many)[: 4 * 512] + b"damage" * 512)
    with pytest.raises(DetError, match="it holds more than 3 files and directories"):
        unpack_context_dir(damaged, tmp_path / "copy")
    assert not (tmp_path / "copy" / "0").exists()


def test_small_code_needs_little_memory(code: Path, tmp_path: Path) -> None:
    """A hundred launches at once do not ask for the memory of a hundred of the largest archives."""
    content = pack_context_dir(code)
    (tmp_path / "copy").mkdir()
    tracemalloc.start()
    unpack_context_dir(content, tmp_path / "copy")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 << 20


def test_an_archive_may_be_as_large_as_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers and contents are blocks of 512 bytes, and the last block of a tar file is filled to 10 KiB."""
    code, target = tmp_path / "code", tmp_path / "unpacked"
    for directory in (code, target):
        directory.mkdir()
    (code / "a.py").write_bytes(bytes(512))

    def fits(limit: int) -> bool:
        monkeypatch.setattr(context_archive, "_ARCHIVE_LIMIT", limit)
        try:
            pack_context_dir(code)
        except DetError:
            return False
        return True

    smallest = next(limit for limit in range(0, 10_240, 512) if fits(limit))
    assert smallest >= 1024
    monkeypatch.setattr(context_archive, "_ARCHIVE_LIMIT", smallest - 1)
    with pytest.raises(DetError, match=r"the 1 files .* make an archive of 0 MiB, the limit is 0 MiB.*\.detignore"):
        pack_context_dir(code)
    monkeypatch.setattr(context_archive, "_ARCHIVE_LIMIT", 10_240)
    content = pack_context_dir(code)
    unpack_context_dir(content, target)
    assert (target / "a.py").read_bytes() == bytes(512)
    monkeypatch.setattr(context_archive, "_ARCHIVE_LIMIT", 10_239)
    with pytest.raises(DetError, match="it holds more than 0 MiB"):
        unpack_context_dir(content, target)


@pytest.mark.integration
def test_the_open_database_in_the_context_directory_is_not_read(store: TrackingStore, det_home: Path) -> None:
    write(det_home.parent / "train.py", "train")
    experiment = submit_experiment(store, parse_config(CONFIG), det_home.parent)
    # Closing the database file drops this process's locks on it, and the next client that closes it removes its log.
    leave = "import sys, sqlite3; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM trials'); c.close()"
    subprocess.run([sys.executable, "-c", leave, det_home / "det.db"], check=True)
    assert (det_home / "det.db-wal").exists()
    assert ExperimentRunner(store, experiment.id).run() is State.COMPLETED
