"""`CheckpointContext` with one rank and with several, which succeed or fail together, on every kind of storage."""

from __future__ import annotations

import errno
import inspect
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from det_core.core import CheckpointContext, DownloadMode, single_process
from det_core.errors import CheckpointCorrupt, CheckpointNotFound, DiskError, RankFailed, StorageError
from det_core.interfaces.records import CheckpointState
from det_core.storage.directory import DirectoryStorage
from det_core.tracking import open_store

from .checkpoint_ranks import Job, make_job, on_every_store, tree

STEPS = {"steps_completed": 3}
RANKS = pytest.mark.parametrize("size", [1, 2, 4])


@pytest.fixture
def job(det_home: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Job]:
    with open_store() as record:
        yield make_job(record, tmp_path / "storage", getattr(request, "param", "mounted"))


@pytest.fixture
def one(job: Job) -> CheckpointContext:
    return job.context(single_process())


@pytest.fixture
def source(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that creates a directory with files, as in ``source("a", weights="1")``."""

    def make(name: str, **files: str) -> Path:
        directory = tmp_path / name
        directory.mkdir()
        for path, text in files.items():
            (directory / path).write_text(text)
        return directory

    return make


def test_methods_have_the_documented_signatures() -> None:
    def parameters(method: str) -> list[tuple[str, Any, bool]]:
        found = list(inspect.signature(getattr(CheckpointContext, method)).parameters.values())[1:]
        return [(p.name, p.default, p.kind is p.KEYWORD_ONLY) for p in found]

    required, mode = inspect.Parameter.empty, DownloadMode.LocalWorkersShareDownload
    selector, verify = ("selector", None, True), ("verify", True, True)
    shard = ("shard", False, True)
    assert parameters("upload") == [("ckpt_dir", required, False), ("metadata", None, False), shard, selector]
    assert parameters("store_path") == [("metadata", None, False), shard]
    how = [("download_mode", mode, False), selector, verify]
    assert parameters("download") == [("storage_id", required, False), ("ckpt_dir", required, False), *how]
    assert parameters("restore_path") == [("storage_id", required, False), *how]
    assert [m.value for m in DownloadMode] == ["LOCAL_WORKERS_SHARE_DOWNLOAD", "NO_SHARED_DOWNLOAD"]


# One rank


@on_every_store
def test_a_download_equals_what_was_uploaded(job: Job, one: CheckpointContext, source: Any, tmp_path: Path) -> None:
    mine = source("mine", a="1", metadata="x")
    (mine / "sub" / "empty").mkdir(parents=True)
    before = sorted(mine.rglob("*"))
    storage_id = one.upload(mine, {**STEPS, "note": {"deep": [1, None]}})
    assert sorted(mine.rglob("*")) == before
    (row,) = job.rows()
    assert (row.uuid, row.state, row.steps_completed) == (storage_id, CheckpointState.COMPLETED, 3)
    assert set(row.resources) == {"a", "metadata", "sub/", "sub/empty/", "metadata.json"}
    assert row.resources["metadata.json"] == (job.base / storage_id / "metadata.json").stat().st_size
    one.download(storage_id, tmp_path / "back")
    assert tree(tmp_path / "back") == tree(mine)
    assert (tmp_path / "back" / "sub" / "empty").is_dir()
    assert one.get_metadata(storage_id) == {**STEPS, "note": {"deep": [1, None]}}


@on_every_store
def test_a_selector_cannot_drop_metadata_json(job: Job, one: CheckpointContext, source: Any, tmp_path: Path) -> None:
    storage_id = one.upload(source("mine", keep="1", drop="2"), STEPS, selector=lambda path: path == "keep")
    assert job.stored() == ["keep", "metadata.json"]
    one.download(storage_id, tmp_path / "back", selector=lambda path: False)
    assert [path.name for path in (tmp_path / "back").iterdir()] == ["metadata.json"]
    with one.restore_path(storage_id, selector=lambda path: False) as path:
        assert [file.name for file in path.iterdir()] == ["metadata.json"]


@on_every_store
def test_restore_path_yields_what_store_path_stored(job: Job, one: CheckpointContext) -> None:
    with one.store_path(STEPS) as (path, storage_id):
        (path / "sub").mkdir()
        (path / "sub" / "w").write_text("1")
        assert job.rows()[0].state is CheckpointState.ACTIVE
    assert job.stored() == ["metadata.json", "sub/w"]
    with one.restore_path(storage_id) as path:
        assert tree(path) == {"sub/w": b"1"}
        kept = path
    assert not kept.exists()
    assert job.stored() == ["metadata.json", "sub/w"]


def test_restore_path_on_a_mounted_file_system_copies_nothing_and_protects_the_files(
    job: Job, one: CheckpointContext
) -> None:
    with one.store_path(STEPS) as (path, storage_id):
        (path / "w").write_text("1")
    stored = job.base / storage_id / "w"
    assert stored.stat().st_mode & 0o222 == 0
    with one.restore_path(storage_id) as path:
        assert (path / "w").samefile(stored)
        (path / "w").unlink()
        (path / "mine").touch()
    assert stored.read_text() == "1"
    assert job.stored() == ["metadata.json", "w"]


def test_links_in_a_store_path_become_separate_files(job: Job, one: CheckpointContext, source: Any) -> None:
    mine = source("mine", soft="1", hard="2")
    with one.store_path(STEPS) as (path, storage_id):
        (path / "soft").symlink_to(mine / "soft")
        os.link(mine / "hard", path / "hard")
    assert (mine / "hard").stat().st_mode & 0o200
    shutil.rmtree(mine)
    with one.restore_path(storage_id) as path:
        assert tree(path) == {"soft": b"1", "hard": b"2"}


@pytest.mark.parametrize("reads", ["download", "restore_path"])
@on_every_store
def test_damage_is_found_unless_verify_is_false(
    job: Job, one: CheckpointContext, source: Any, tmp_path: Path, reads: str
) -> None:
    storage_id = one.upload(source("mine", w="1"), STEPS)
    (job.base / storage_id / "w").chmod(0o600)
    (job.base / storage_id / "w").write_text("2")

    def read(verify: bool) -> None:
        if reads == "download":
            one.download(storage_id, tmp_path / "back", verify=verify)
        else:
            with one.restore_path(storage_id, verify=verify) as path:
                assert (path / "w").read_text() == "2"

    with pytest.raises(CheckpointCorrupt, match="w should have"):
        read(verify=True)
    read(verify=False)


@on_every_store
def test_a_body_that_raises_leaves_no_checkpoint(job: Job, one: CheckpointContext) -> None:
    with pytest.raises(ZeroDivisionError), one.store_path(STEPS) as (path, _):
        (path / "half").write_text("1")
        raise ZeroDivisionError
    assert [row.state for row in job.rows()] == [CheckpointState.DELETED]
    assert not any(job.base.glob("*"))


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({}, ValueError),
        (None, ValueError),
        ({"steps_completed": "3"}, ValueError),
        ({"steps_completed": True}, ValueError),
        ({"steps_completed": 3.5}, ValueError),
        ({"steps_completed": -1}, ValueError),
        ({**STEPS, "x": {1}}, TypeError),
    ],
)
def test_metadata_is_checked_before_anything_is_recorded(
    job: Job, one: CheckpointContext, source: Any, metadata: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        one.upload(source("mine", a="1"), metadata)
    with pytest.raises(error), one.store_path(metadata):
        raise AssertionError("the body must not run")
    assert job.rows() == []


def test_a_float_without_a_fraction_is_a_step(job: Job, one: CheckpointContext, source: Any) -> None:
    storage_id = one.upload(source("mine", a="1"), {"steps_completed": 5.0})
    assert job.rows()[0].steps_completed == 5
    assert str(one.get_metadata(storage_id)["steps_completed"]) == "5"


def test_checkpoints_without_a_step_cause_one_warning_without_a_runner(
    job: Job, source: Any, caplog: pytest.LogCaptureFixture
) -> None:
    context = job.context(single_process(), require_steps=False)
    with caplog.at_level(logging.WARNING):
        context.upload(source("a", a="1"))
        context.upload(source("b", a="1"), {"note": "x"})
    assert [row.steps_completed for row in job.rows(CheckpointState.COMPLETED)] == [None, None]
    assert len(caplog.records) == 1


def test_upload_rejects_missing_directories(one: CheckpointContext, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="without ckpt_dir"):
        one.upload(None, STEPS)
    with pytest.raises(RuntimeError, match="no rank passed a ckpt_dir"):
        one.upload(None, STEPS, shard=True)
    with pytest.raises(RuntimeError, match="selector without ckpt_dir"):
        one.upload(None, STEPS, shard=True, selector=bool)
    with pytest.raises(ValueError, match="not a directory"):
        one.upload(tmp_path / "missing", STEPS)


def test_metrics_are_flushed_before_completion_and_the_hook_is_called_after_it(job: Job, source: Any) -> None:
    def saved() -> None:
        calls.append(job.rows()[0].state.value)

    def flush() -> None:
        calls.append(job.stored())

    calls: list[Any] = []
    job.context(single_process(), flush=flush, on_saved=saved).upload(source("a", a="1"), STEPS)
    assert calls == [["a"], "COMPLETED"]


@pytest.mark.parametrize("step", ["flush", "complete_checkpoint"])
@on_every_store
def test_a_checkpoint_that_cannot_be_recorded_is_not_visible(
    job: Job, source: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StorageError("no")

    if step == "complete_checkpoint":
        monkeypatch.setattr(job.record, step, fail)
    context = job.context(single_process(), **({"flush": fail} if step == "flush" else {}))
    with pytest.raises(StorageError, match="no"):
        context.upload(source("a", a="1"), STEPS)
    assert job.nothing_is_left()


def test_a_recorded_checkpoint_is_kept_although_the_response_was_lost(
    job: Job, one: CheckpointContext, source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = job.record.complete_checkpoint

    def answer_is_lost(*args: Any, **kwargs: Any) -> None:
        complete(*args, **kwargs)
        raise StorageError("the connection broke")

    monkeypatch.setattr(job.record, "complete_checkpoint", answer_is_lost)
    with pytest.raises(StorageError):
        one.upload(source("a", a="1"), STEPS)
    assert [row.state for row in job.rows()] == [CheckpointState.COMPLETED]
    assert job.stored() == ["a", "metadata.json"]


def test_an_upload_fails_if_a_file_changes_or_vanishes(
    job: Job, one: CheckpointContext, source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = DirectoryStorage.put

    def meanwhile(change: Callable[[Path], None]) -> None:
        def put_late(self: DirectoryStorage, storage_id: str, path: str, origin: Path) -> str | None:
            crc = put(self, storage_id, path, origin)
            change(origin)
            return crc

        monkeypatch.setattr(DirectoryStorage, "put", put_late)

    mine = source("mine", a="1")
    meanwhile(lambda path: path.write_text("22"))
    with pytest.raises(StorageError, match="changed while it was being stored"):
        one.upload(mine, STEPS)
    meanwhile(Path.unlink)
    with pytest.raises(StorageError, match="vanished"):
        one.upload(mine, STEPS)
    assert job.nothing_is_left()


def test_delete_removes_the_files_and_marks_the_row(job: Job, one: CheckpointContext, source: Any) -> None:
    storage_id = one.upload(source("a", a="1"), STEPS)
    one.delete(storage_id)
    assert job.nothing_is_left()
    for missing in (storage_id, "never-there"):
        one.delete(missing)
        with pytest.raises(CheckpointNotFound, match=missing):
            one.get_metadata(missing)


def test_a_checkpoint_of_another_tracking_store_can_be_deleted(job: Job, one: CheckpointContext) -> None:
    (job.base / "foreign").mkdir(parents=True)
    (job.base / "foreign" / "w").touch()
    one.delete("foreign")
    assert job.stored() == []


@on_every_store
def test_a_complete_checkpoint_that_lost_its_metadata_json_restores_with_a_warning(
    job: Job, one: CheckpointContext, source: Any, tmp_path: Path
) -> None:
    storage_id = one.upload(source("mine", a="1"), STEPS)
    (job.base / storage_id / "metadata.json").unlink()
    with pytest.warns(UserWarning, match="lost its metadata"):
        one.download(storage_id, tmp_path / "back")
    assert tree(tmp_path / "back") == {"a": b"1"}
    assert json.loads((tmp_path / "back" / "metadata.json").read_text()) == STEPS


def write_over(file: Path, text: str) -> None:
    file.chmod(0o600)
    file.write_text(text)


def damage_and_drop_metadata(stored: Path, damage: Callable[[Path], None]) -> None:
    damage(stored / "w")
    (stored / "metadata.json").unlink()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "a flipped byte": lambda stored: write_over(stored / "w", "2"),
    "a lost file": lambda stored: (stored / "w").unlink(),
    "damaged metadata": lambda stored: write_over(stored / "metadata.json", "{"),
    "a lost file and lost metadata": lambda stored: damage_and_drop_metadata(stored, Path.unlink),
    "a truncated file and lost metadata": lambda stored: damage_and_drop_metadata(
        stored, lambda file: write_over(file, "")
    ),
}


@pytest.mark.parametrize(("damage", "size"), [*((damage, 1) for damage in DAMAGES), ("a flipped byte", 3)])
@on_every_store
def test_a_damaged_checkpoint_is_marked_as_an_error(
    job: Job, source: Any, tmp_path: Path, damage: str, size: int
) -> None:
    """A checkpoint that lost metadata.json and files is corrupt, too, and is marked only once."""
    one = job.context(single_process())
    older = one.upload(source("older", w="0"), {"steps_completed": 1})
    storage_id = one.upload(source("mine", w="1", v="1"), STEPS)
    DAMAGES[damage](job.base / storage_id)
    outcomes = job.run(size, lambda context, rank: context.download(storage_id, tmp_path / f"back{rank}"))
    assert failures(outcomes) == ["CheckpointCorrupt", *["RankFailed"] * (size - 1)]
    (marked,) = job.rows(CheckpointState.ERROR)
    assert (marked.uuid, marked.error) == (storage_id, str(outcomes[0]))
    assert [row.uuid for row in job.rows(CheckpointState.COMPLETED)] == [older]
    with pytest.raises((CheckpointCorrupt, CheckpointNotFound)), one.restore_path(storage_id):
        pass
    assert job.rows(CheckpointState.ERROR) == [marked]


def test_a_storage_error_marks_no_checkpoint_as_damaged(
    job: Job, one: CheckpointContext, source: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: DirectoryStorage, *arguments: Any) -> None:
        raise StorageError("connection reset")

    storage_id = one.upload(source("mine", w="1"), STEPS)
    monkeypatch.setattr(DirectoryStorage, "get", refuse)
    with pytest.raises(StorageError, match="connection reset"):
        one.download(storage_id, tmp_path / "back")
    assert [row.state for row in job.rows()] == [CheckpointState.COMPLETED]


def test_a_disk_that_fails_marks_no_checkpoint_as_damaged(job: Job, one: CheckpointContext, source: Any) -> None:
    storage_id = one.upload(source("mine", w="1"), STEPS)
    with pytest.raises(DiskError, match="a disk has failed"), one._source(storage_id).recording_damage():
        raise CheckpointCorrupt("it cannot be read") from OSError(errno.EIO, os.strerror(errno.EIO))
    assert [row.state for row in job.rows()] == [CheckpointState.COMPLETED]


def test_a_checkpoint_of_a_newer_release_is_not_marked_as_damaged(
    job: Job, one: CheckpointContext, source: Any
) -> None:
    storage_id = one.upload(source("mine", w="1"), STEPS)
    write_over(job.base / storage_id / "metadata.json", '{"_det": {"format": 2, "files": {}}}')
    with pytest.raises(StorageError, match="upgrade det-core"):
        one.get_metadata(storage_id)
    assert [row.state for row in job.rows()] == [CheckpointState.COMPLETED]


# Several ranks


def failures(outcomes: list[Any]) -> list[str]:
    return [type(outcome).__name__ for outcome in outcomes]


@RANKS
@on_every_store
def test_a_sharded_upload_is_the_union_of_the_directories(job: Job, source: Any, tmp_path: Path, size: int) -> None:
    dirs = [source(f"d{rank}", **{f"r{rank}": "x" * rank, "same": "s"}) for rank in range(size)]

    def work(context: CheckpointContext, rank: int) -> str:
        return context.upload(dirs[rank], {**STEPS, "by": {str(rank): rank}}, shard=True)

    (storage_id,) = set(job.run(size, work))
    expected = {**{f"r{rank}": "x" * rank for rank in range(size)}, "same": "s"}
    one = job.context(single_process())
    one.download(storage_id, tmp_path / "back")
    assert tree(tmp_path / "back") == {name: text.encode() for name, text in expected.items()}
    assert one.get_metadata(storage_id) == {**STEPS, "by": {str(rank): rank for rank in range(size)}}
    assert set(job.rows()[0].resources) == {*expected, "metadata.json"}
    assert job.stored() == sorted([*expected, "metadata.json"])


@pytest.mark.parametrize("shard", [False, True])
def test_links_to_files_of_the_same_checkpoint_become_files(
    job: Job, one: CheckpointContext, tmp_path: Path, shard: bool
) -> None:
    """A link such as ``last.ckpt -> epoch3.ckpt`` must be read before the file that it points to is moved."""
    with one.store_path(STEPS, shard=shard) as (path, storage_id):
        (path / "below").mkdir()
        for number in range(20):
            (path / f"epoch{number}").write_text(str(number))
            (path / f"a{number}").symlink_to(f"epoch{number}")
            (path / f"z{number}").symlink_to(path / f"a{number}")
            (path / "below" / f"z{number}").symlink_to(f"../epoch{number}")
            (path / f"first{number}").write_text(str(number))
            os.link(path / f"first{number}", path / f"hard{number}")
        (path / "linked").symlink_to("below")
    one.download(storage_id, tmp_path / "back")
    for number in range(20):
        for name in ("epoch", "a", "z", "below/z", "linked/z", "first", "hard"):
            assert (tmp_path / "back" / f"{name}{number}").read_text() == str(number)
    assert not [path for path in (job.base / storage_id).rglob("*") if path.is_symlink()]


@RANKS
@on_every_store
def test_a_sharded_store_path_is_the_union_of_the_directories(job: Job, tmp_path: Path, size: int) -> None:
    def work(context: CheckpointContext, rank: int) -> str:
        with context.store_path(STEPS if rank == 0 else None, shard=True) as (path, storage_id):
            (path / "sub").mkdir()
            (path / "sub" / f"r{rank}").write_text(str(rank))
            (path / "same").write_text("s")
            (path / "empty").mkdir()
            (path / "half").mkdir()
            if rank == size - 1:
                (path / "half" / "w").write_text("h")
        return storage_id

    (storage_id,) = set(job.run(size, work))
    job.context(single_process()).download(storage_id, tmp_path / "back")
    assert tree(tmp_path / "back") == {
        "same": b"s",
        "half/w": b"h",
        **{f"sub/r{rank}": str(rank).encode() for rank in range(size)},
    }
    assert sorted(path.name for path in (job.base / storage_id).iterdir()) == [
        "empty",
        "half",
        "metadata.json",
        "same",
        "sub",
    ]


def test_ranks_may_have_nothing_and_the_same_directory_is_stored_once(
    job: Job, source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    puts: list[str] = []
    put = DirectoryStorage.put

    def counted(self: DirectoryStorage, storage_id: str, path: str, origin: Path) -> str | None:
        puts.append(path)
        return put(self, storage_id, path, origin)

    monkeypatch.setattr(DirectoryStorage, "put", counted)
    shared = source("shared", a="1", b="2")

    def work(context: CheckpointContext, rank: int) -> str:
        return context.upload(None if rank == 1 else shared, STEPS, shard=True)

    assert len(set(job.run(3, work))) == 1
    assert sorted(puts) == ["a", "b", "metadata.json"]


def test_each_rank_selects_for_itself(job: Job, source: Any) -> None:
    shared = source("shared", r0="0", r1="1", r2="2")

    def work(context: CheckpointContext, rank: int) -> str:
        return context.upload(shared, STEPS, shard=True, selector=lambda path: path == f"r{rank}")

    job.run(2, work)
    assert job.stored() == ["metadata.json", "r0", "r1"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (({"w": "1"}, {"w": "2"}), "file conflict: 'w'"),
        (({"w": "1"}, {"w": "22"}), "'w' is 1 bytes on rank 0 and 2 bytes on rank 1"),
    ],
)
@on_every_store
def test_file_conflicts_are_found_before_anything_is_stored(
    job: Job, source: Any, files: tuple[dict[str, str], ...], message: str
) -> None:
    dirs = [source(f"d{rank}", **given) for rank, given in enumerate(files)]
    outcomes = job.run(2, lambda context, rank: context.upload(dirs[rank], STEPS, shard=True))
    assert failures(outcomes) == ["RuntimeError", "RuntimeError"]
    assert all(message in str(outcome) for outcome in outcomes)
    assert job.rows() == []

    def write(context: CheckpointContext, rank: int) -> None:
        with context.store_path(STEPS, shard=True) as (path, _):
            for name, text in files[rank].items():
                (path / name).write_text(text)

    outcomes = job.run(2, write)
    assert failures(outcomes) == ["RuntimeError", "RuntimeError"]
    assert job.nothing_is_left()


def test_conflicting_metadata_fails_all_ranks(job: Job, source: Any) -> None:
    mine = source("mine", a="1")
    outcomes = job.run(3, lambda context, rank: context.upload(mine, {**STEPS, "n": {"x": rank}}, shard=True))
    assert failures(outcomes) == ["RuntimeError"] * 3
    assert "/n/x is 0 on rank 0 and 1 on rank 1" in str(outcomes[2])
    assert job.rows() == []


def test_an_argument_that_is_wrong_on_one_rank_fails_all(job: Job, source: Any, tmp_path: Path) -> None:
    dirs = [source("mine", a="1"), tmp_path / "missing", None]
    outcomes = job.run(3, lambda context, rank: context.upload(dirs[rank], STEPS, shard=True))
    assert failures(outcomes) == ["RankFailed", "ValueError", "RankFailed"]
    assert "rank 1: ValueError" in str(outcomes[0])
    assert isinstance(outcomes[0], RuntimeError)
    outcomes = job.run(2, lambda context, rank: context.upload(None, STEPS, shard=True))
    assert failures(outcomes) == ["RuntimeError", "RuntimeError"]
    assert job.rows() == []


@pytest.mark.parametrize("failing", [0, 1])
@on_every_store
def test_a_body_that_raises_on_one_rank_fails_all(job: Job, failing: int) -> None:
    def work(context: CheckpointContext, rank: int) -> None:
        with context.store_path(STEPS, shard=True) as (path, _):
            (path / f"r{rank}").write_text("1")
            if rank == failing:
                raise KeyError("mine")

    outcomes = job.run(2, work)
    assert failures(outcomes)[failing] == "KeyError"
    assert isinstance(outcomes[1 - failing], RankFailed)
    assert f"rank {failing}: KeyError" in str(outcomes[1 - failing])
    assert job.nothing_is_left()
    assert not any(job.base.glob("*"))


@pytest.mark.parametrize("step", ["begin_checkpoint", "complete_checkpoint"])
def test_an_error_of_the_chiefs_tracking_store_fails_all_ranks(
    job: Job, source: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StorageError("no")

    monkeypatch.setattr(job.record, step, fail)
    mine = source("mine", a="1")
    outcomes = job.run(2, lambda context, rank: context.upload(mine, STEPS, shard=True))
    assert failures(outcomes) == ["StorageError", "RankFailed"]
    assert job.nothing_is_left()


def test_a_rank_whose_storage_fails_fails_all(job: Job, source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put = DirectoryStorage.put

    def fail(self: DirectoryStorage, storage_id: str, path: str, origin: Path) -> str | None:
        if path == "r1":
            raise StorageError("disk full")
        return put(self, storage_id, path, origin)

    monkeypatch.setattr(DirectoryStorage, "put", fail)
    dirs = [source(f"d{rank}", **{f"r{rank}": "1"}) for rank in range(2)]
    outcomes = job.run(2, lambda context, rank: context.upload(dirs[rank], STEPS, shard=True))
    assert failures(outcomes) == ["RankFailed", "StorageError"]
    assert "rank 1: StorageError: disk full" in str(outcomes[0])
    assert job.nothing_is_left()


def test_a_directory_that_hosts_do_not_share_cannot_store_shards(job: Job, source: Any, tmp_path: Path) -> None:
    def work(context: CheckpointContext, rank: int) -> None:
        if rank == 1:
            context._storage = make_job(job.record, tmp_path / "other host", "mounted").storage
        context.upload(dirs[rank], STEPS, shard=True)

    dirs = [source(f"d{rank}", **{f"r{rank}": "1"}) for rank in range(2)]
    outcomes = job.run(2, work)
    assert failures(outcomes) == ["StorageError", "RankFailed"]
    assert "all hosts share" in str(outcomes[0])
    assert job.nothing_is_left()


def test_only_the_chief_saves_without_shard(job: Job, source: Any) -> None:
    mine = source("mine", a="1")

    def work(context: CheckpointContext, rank: int) -> str:
        if rank == 1:
            with pytest.raises(RuntimeError, match=r"store_path\(shard=False\) from non-chief"), context.store_path():
                pass
        return context.upload(mine, STEPS)

    outcomes = job.run(2, work)
    assert isinstance(outcomes[0], str)
    assert isinstance(outcomes[1], RuntimeError)
    assert "cannot call upload(shard=False) from non-chief worker" in str(outcomes[1])


@on_every_store
def test_a_shared_download_takes_what_any_rank_selects_once(
    job: Job, source: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage_id = job.context(single_process()).upload(source("mine", r0="0", r1="1", none="2"), STEPS)
    gets: list[str] = []
    get = DirectoryStorage.get

    def counted(self: DirectoryStorage, storage_id: str, path: str, target: Path) -> str | None:
        gets.append(path)
        return get(self, storage_id, path, target)

    monkeypatch.setattr(DirectoryStorage, "get", counted)

    def work(context: CheckpointContext, rank: int) -> Any:
        context.download(storage_id, tmp_path / "back", selector=lambda path: path == f"r{rank}")
        with context.restore_path(storage_id, selector=lambda path: path == f"r{rank}") as path:
            return path, tree(path), tree(tmp_path / "back")

    outcomes = job.run(2, work)
    assert outcomes[0] == outcomes[1]
    path, *found = outcomes[0]
    assert found == [{"r0": b"0", "r1": b"1"}] * 2
    assert not path.exists()
    assert gets.count("metadata.json") == 2


def test_one_rank_alone_may_download_without_sharing(job: Job, source: Any) -> None:
    storage_id = job.context(single_process()).upload(source("mine", r0="0", r1="1"), STEPS)

    def work(context: CheckpointContext, rank: int) -> Any:
        if rank == 1:
            return None
        with context.restore_path(
            storage_id, DownloadMode.NoSharedDownload, selector=lambda path: path == "r0"
        ) as path:
            return tree(path)

    assert job.run(2, work) == [{"r0": b"0"}, None]


@pytest.mark.parametrize("failing", [0, 1])
def test_a_selector_that_raises_fails_all(job: Job, source: Any, tmp_path: Path, failing: int) -> None:
    storage_id = job.context(single_process()).upload(source("mine", a="0"), STEPS)

    def work(context: CheckpointContext, rank: int) -> None:
        def selector(path: str) -> bool:
            if rank == failing:
                raise KeyError(path)
            return True

        context.download(storage_id, tmp_path / "back", selector=selector)

    outcomes = job.run(2, work)
    assert sorted(failures(outcomes)) == ["KeyError", "RankFailed"]
    assert failures(outcomes)[failing] == "KeyError"
    assert not (tmp_path / "back").exists()


def test_a_failed_download_of_the_local_chief_fails_all_ranks(job: Job, source: Any, tmp_path: Path) -> None:
    storage_id = job.context(single_process()).upload(source("mine", a="0"), STEPS)
    (job.base / storage_id / "a").unlink()
    outcomes = job.run(2, lambda context, rank: context.download(storage_id, tmp_path / "back"))
    assert failures(outcomes) == ["CheckpointCorrupt", "RankFailed"]
    outcomes = job.run(2, lambda context, rank: context.download("missing", tmp_path / "back"))
    assert failures(outcomes) == ["CheckpointNotFound", "RankFailed"]


def test_the_files_stay_until_all_ranks_have_read_them(job: Job, source: Any) -> None:
    storage_id = job.context(single_process()).upload(source("mine", a="0"), STEPS)

    def work(context: CheckpointContext, rank: int) -> Any:
        with context.restore_path(storage_id) as path:
            if rank == 0:
                raise KeyError
            return tree(path)

    outcomes = job.run(2, work)
    assert isinstance(outcomes[0], KeyError)
    assert outcomes[1] == {"a": b"0"}


@pytest.mark.parametrize("known", [True, False])
def test_a_disk_without_room_is_warned_about_once(
    one: CheckpointContext,
    source: Callable[..., Path],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    known: bool,
) -> None:
    def save() -> None:
        if known:
            one.upload(directory, STEPS)
        else:
            with one.store_path(STEPS) as (path, _):
                (path / "weights").write_text("w" * 3000)

    directory = source("big", weights="w" * 3000)
    if not known:  # the size of the first one is the estimate for the next
        save()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 3000))  # type: ignore[attr-defined]
    save()
    assert "MB free" not in caplog.text
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 2000))  # type: ignore[attr-defined]
    save()
    save()
    assert caplog.text.count("MB free, but the checkpoint needs about") == 1
