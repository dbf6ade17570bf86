"""TensorBoard files, read back by TensorBoard itself."""

from __future__ import annotations

import math
import stat
import sys
import tempfile
import time
from pathlib import Path, PurePath
from types import ModuleType

import pytest

from det_core import core
from det_core.core import _tensorboard
from det_core.core._event_file import EventFile, encode_scalars
from det_core.core._tensorboard import TensorboardDirectory, TensorboardMode, scalars_by_step
from det_core.errors import StorageError
from det_core.interfaces.records import MetricsReport
from det_core.interfaces.storage import StorageManager
from det_core.storage import ObjectStorage
from det_core.tracking import open_store

from ..storage.memory import MemoryBucket
from ..waiting import wait_for

pytest.importorskip("tensorboard")
sys.modules.setdefault("tensorboard.compat.notf", ModuleType("notf"))  # TensorBoard reads files without TensorFlow

Points = dict[str, list[tuple[int, float]]]


@pytest.fixture(autouse=True)
def _scratch(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep files that are not stored among those of the tests."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("scratch")))


def read(directory: Path) -> Points:
    """Return the (step, value) pairs of all scalars under a directory, by tag."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]
    }


def folder(directory: Path) -> Path:
    """Return the directory of the copies in a storage with this base directory."""
    with open_store() as store:
        return directory / store.cluster_id / "tensorboard/experiment/1/trial/1"


def stored(directory: Path) -> dict[str, bytes]:
    copies = folder(directory)
    return {path.relative_to(copies).as_posix(): path.read_bytes() for path in copies.rglob("*") if path.is_file()}


@pytest.mark.integration
def test_reported_metrics_are_visible_in_tensorboard(tmp_path: Path) -> None:
    with core.init(checkpoint_storage=tmp_path) as context:
        train = context.train
        train.report_training_metrics(2, {"loss": 0.5, "lr": 0.25}, [{"loss": 0.75, "n": 1}, {"loss": 0.25}])
        train.report_training_metrics(3, {"loss": 2, "flag": True})
        train.report_validation_metrics(3, {"loss": 4.0, "val_acc": 0.5, "validation_x": 1})
        train.report_metrics("test", 3, {"loss": 8.0})
        local = train.get_tensorboard_path()
    assert read(folder(tmp_path)) == {
        "Determined/loss": [(0, 0.75), (1, 0.25), (3, 2.0)],
        "Determined/n": [(0, 1.0)],
        "Determined/lr": [(2, 0.25)],
        "Determined/flag": [(3, 1.0)],
        "Determined/val_loss": [(3, 4.0)],
        "Determined/val_acc": [(3, 0.5)],
        "Determined/validation_x": [(3, 1.0)],
        "Determined/test_loss": [(3, 8.0)],
    }
    assert not local.exists()


def test_only_numbers_are_drawn(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    values = {
        "nan": math.nan,
        "inf": math.inf,
        "large": -1e300,
        "int": 10**400,
        "one": np.ones(1),
        "text": "x",
        "list": [1.0],
        "dict": {"a": 1},
        "none": None,
    }
    with core.init(checkpoint_storage=tmp_path) as context:
        context.train.report_training_metrics(1, values)
        context.train.report_training_metrics(2, {"text": "only"})
    assert repr(read(folder(tmp_path))) == repr(
        {
            "Determined/nan": [(1, math.nan)],
            "Determined/inf": [(1, math.inf)],
            "Determined/large": [(1, -math.inf)],
            "Determined/int": [(1, math.inf)],
            "Determined/one": [(1, 1.0)],
        }
    )


def test_each_event_file_has_a_unique_name(tmp_path: Path) -> None:
    for step in range(3):
        file = EventFile(tmp_path)
        file.write(encode_scalars(time.time(), [(step, {"x": step})]))
        file.close()
    assert len(list(tmp_path.iterdir())) == 3
    assert read(tmp_path) == {"x": [(0, 0.0), (1, 1.0), (2, 2.0)]}


def test_steps_and_tags_of_any_size_are_encoded(tmp_path: Path) -> None:
    events = {0: "a", 127: "é" * 100, 128: "b" * 20_000, 2**40: "c", 2**63 - 1: "d", -3: "e"}
    file = EventFile(tmp_path)
    for step, tag in events.items():
        file.write(encode_scalars(1.5, [(step, {tag: 0.5})]))
    file.close()
    assert read(tmp_path) == {tag: [(step, 0.5)] for step, tag in events.items()}


def test_records_carry_checksums(tmp_path: Path) -> None:
    file = EventFile(tmp_path)
    file.write(encode_scalars(time.time(), [(1, {"x": 1.0})]))
    file.close()
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[-6] ^= 1  # in the value
    path.write_bytes(content)
    assert read(tmp_path) == {}


def test_batches_reported_too_early_have_steps_below_zero() -> None:
    batches = [{"loss": 0.5}, {"loss": 0.25}]
    report = MetricsReport(
        trial_id=1, run_id=1, group="training", steps_completed=1, metrics={"loss": 1}, batch_metrics=batches
    )
    assert list(scalars_by_step(report)) == [(-1, {"Determined/loss": 0.5}), (0, {"Determined/loss": 0.25})]


def test_the_mean_of_an_array_is_a_scalar_of_the_report() -> None:
    metrics, batches = {"loss": 1, "map": 2.5}, [{"loss": 1, "map": {"count": 2, "min": 2, "max": 3, "mean": 2.5}}]
    report = MetricsReport(
        trial_id=1, run_id=1, group="training", steps_completed=1, metrics=metrics, batch_metrics=batches
    )
    assert list(scalars_by_step(report)) == [(0, {"Determined/loss": 1}), (1, {"Determined/map": 2.5})]


@pytest.mark.parametrize("mode", [*TensorboardMode, "MANUAL"])
def test_the_directory_is_private_and_does_not_change(mode: TensorboardMode) -> None:
    with core.init(tensorboard_mode=mode) as context:
        path = context.train.get_tensorboard_path()
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert context.train.get_tensorboard_path() == path
        with core.init() as other:
            assert other.train.get_tensorboard_path() != path


def test_unknown_modes_are_rejected_before_anything_is_recorded() -> None:
    with pytest.raises(ValueError, match="'auto' is not a valid TensorboardMode"):
        core.init(tensorboard_mode="auto")  # type: ignore[arg-type]


def test_auto_mode_also_stores_files_that_the_script_writes(tmp_path: Path) -> None:
    with core.init(checkpoint_storage=tmp_path) as context:
        path = context.train.get_tensorboard_path()
        (path / "plugins" / "profile").mkdir(parents=True)
        (path / "plugins" / "profile" / "trace.json").write_text("{}")
        with pytest.raises(RuntimeError, match=r"MANUAL.*core.init\(tensorboard_mode="):
            context.train.upload_tensorboard_files()
    assert stored(tmp_path) == {"plugins/profile/trace.json": b"{}"}


def test_sync_stores_in_the_background(tmp_path: Path) -> None:
    with core.init(checkpoint_storage=tmp_path) as context:
        context.train.report_training_metrics(1, {"loss": 0.5})
        context.train.flush()
        context.train._tensorboard.sync()
        wait_for(lambda: read(folder(tmp_path)) if stored(tmp_path) else None)
        context.train.report_training_metrics(2, {"loss": 0.25})
    assert read(folder(tmp_path)) == {"Determined/loss": [(1, 0.5), (2, 0.25)]}


def test_changed_files_are_stored_every_few_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_tensorboard, "_SYNC_INTERVAL", 0.05)
    with core.init(checkpoint_storage=tmp_path) as context:
        path = context.train.get_tensorboard_path() / "x"
        for text in ("one", "two"):
            path.write_text(text)
            wait_for(lambda text=text: stored(tmp_path) == {"x": text.encode()})


def test_manual_mode_writes_and_stores_nothing_automatically(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with core.init(checkpoint_storage=tmp_path, tensorboard_mode=TensorboardMode.MANUAL) as context:
        context.train.report_training_metrics(1, {"loss": 0.5})
        context.train.flush()
        path = context.train.get_tensorboard_path()
        assert list(path.iterdir()) == []
        (path / "mine").write_text("x")
        context.train._tensorboard.sync()
    assert stored(tmp_path) == {}
    assert (path / "mine").read_text() == "x"
    assert f"1 TensorBoard files that were not stored are left in {path}" in caplog.text


def test_manual_mode_uploads_files_that_changed_since_the_last_call(tmp_path: Path) -> None:
    with core.init(checkpoint_storage=tmp_path, tensorboard_mode=TensorboardMode.MANUAL) as context:
        path, upload = context.train.get_tensorboard_path(), context.train.upload_tensorboard_files
        (path / "deep").mkdir()
        (path / "deep" / "a").write_text("1")
        upload()
        assert stored(tmp_path) == {"deep/a": b"1"}
        (path / "deep" / "a").write_text("2")  # within the same second and with the same size
        (path / "b").write_text("b")
        upload()
        assert stored(tmp_path) == {"deep/a": b"2", "b": b"b"}
        (folder(tmp_path) / "b").write_text("untouched")
        upload()
        assert stored(tmp_path) == {"deep/a": b"2", "b": b"untouched"}
    assert not path.exists()


def test_a_selector_and_a_mangler_choose_files_and_their_paths(tmp_path: Path) -> None:
    seen = []

    def selector(path: Path) -> bool:
        seen.append(path)
        return path.suffix != ".tmp"

    with core.init(checkpoint_storage=tmp_path, tensorboard_mode=TensorboardMode.MANUAL) as context:
        path, upload = context.train.get_tensorboard_path(), context.train.upload_tensorboard_files
        for name in ("keep", "drop.tmp"):
            (path / name).write_text(name)
        upload(selector, lambda relative, rank: relative.with_name(f"{relative.name}#{rank}"))
        assert stored(tmp_path) == {"keep#0": b"keep"}
        assert seen == [path / "drop.tmp", path / "keep"]
        upload()  # files that were omitted or stored under another name count as new
        assert stored(tmp_path) == {"keep#0": b"keep", "keep": b"keep", "drop.tmp": b"drop.tmp"}


@pytest.mark.parametrize("target", ["/etc/passwd", "../x", "a/../../x", "."])
def test_a_mangler_cannot_leave_the_directory(tmp_path: Path, target: str) -> None:
    with core.init(checkpoint_storage=tmp_path, tensorboard_mode=TensorboardMode.MANUAL) as context:
        (context.train.get_tensorboard_path() / "x").touch()
        with pytest.raises(ValueError, match="expected a relative path without"):
            context.train.upload_tensorboard_files(mangler=lambda path, rank: PurePath(target))
    assert stored(tmp_path) == {}


class Broken(StorageManager):
    """Storage that rejects all files, and may remove them first, as profilers do that merge their files."""

    def __init__(self, *, removes: bool = False) -> None:
        self.removes = removes

    def put(self, storage_id: str, path: str, source: Path) -> None:
        if self.removes:
            source.unlink()
        raise StorageError("no")

    get = list = delete = put  # type: ignore[assignment]


def test_a_failing_storage_stops_no_training_and_loses_no_file(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tensorboard = TensorboardDirectory(TensorboardMode.AUTO, Broken(), "local", "x", rank=0)
    (tensorboard.path() / "file").write_text("x")
    tensorboard.close()
    assert "could not be stored, will retry: no" in caplog.text
    assert f"left in {tensorboard.path()}" in caplog.text
    manual = TensorboardDirectory(TensorboardMode.MANUAL, Broken(), "local", "x", rank=0)
    (manual.path() / "file").write_text("x")
    with pytest.raises(StorageError, match="no"):
        manual.upload()


def test_a_file_that_cannot_be_stored_does_not_delay_others() -> None:
    """An upload must continue after the first file that fails."""
    bucket = MemoryBucket()
    board = TensorboardDirectory(TensorboardMode.MANUAL, ObjectStorage(bucket, ""), "cluster", "folder", rank=0)
    for name in "abc":
        (board.path() / name).write_text(name)

    def refuse(method: str, key: str) -> None:
        if key.endswith("/a"):
            raise StorageError("no room for this one")

    bucket.before = refuse
    with pytest.raises(StorageError, match="no room for this one"):
        board.upload()
    assert sorted(bucket.objects) == ["cluster/folder/b", "cluster/folder/c"]
    bucket.before = lambda method, key: None
    board.upload()
    assert sorted(bucket.objects) == ["cluster/folder/a", "cluster/folder/b", "cluster/folder/c"]
    board.close()


def test_a_large_file_that_always_grows_is_stored_in_an_object_store() -> None:
    """A file of several parts must be stored before it is closed, and must not raise errors in the training loop."""
    bucket = MemoryBucket()
    board = TensorboardDirectory(TensorboardMode.MANUAL, ObjectStorage(bucket, ""), "cluster", "folder", rank=0)
    events = board.path() / "events"
    events.write_bytes(bytes(10 * bucket.part_size))

    def grow(method: str, key: str) -> None:
        with events.open("ab") as file:
            file.write(b"x")

    bucket.before = grow
    for _ in range(3):
        size = events.stat().st_size
        board.upload()
        assert bucket.objects["cluster/folder/events"][0] == events.read_bytes()[:size]
    bucket.before = lambda method, key: None
    board.upload()
    puts: list[str] = []
    bucket.before = lambda method, key: puts.append(method)
    board.upload()
    assert puts == []
    board.close()


def test_a_file_that_vanishes_is_no_error() -> None:
    tensorboard = TensorboardDirectory(TensorboardMode.MANUAL, Broken(removes=True), "local", "x", rank=0)
    (tensorboard.path() / "file").write_text("x")
    tensorboard.upload()
    tensorboard.close()


def test_other_workers_write_nothing(tmp_path: Path) -> None:
    tensorboard = TensorboardDirectory(TensorboardMode.AUTO, Broken(), "local", "x", rank=1)
    report = MetricsReport(trial_id=1, run_id=1, group="training", steps_completed=1, metrics={"loss": 1})
    tensorboard.write([report])
    tensorboard.sync()
    assert list(tensorboard.path().iterdir()) == []
    tensorboard.close()


def test_an_unwritable_directory_loses_no_report(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with core.init(checkpoint_storage=tmp_path) as context:
        context.train.get_tensorboard_path().rmdir()
        context.train.report_training_metrics(1, {"loss": 0.5})
        context.train.flush()
        context.train.report_training_metrics(2, {"loss": 0.5})
    assert caplog.text.count("stopped writing TensorBoard files to") == 1
