"""TensorBoard files of a trial are stored, and TensorBoard can read them."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from det_torch._tensorboard import TorchWriter, TrialTensorboard

from det_core import core
from det_core.errors import InvalidTrial

pytest.importorskip("tensorboard")
pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path_factory.mktemp("home")))


def scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(directory))
    accumulator.Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]
    }


def stored(storage: Path) -> list[Path]:
    return sorted(path for path in storage.glob("*/tensorboard/experiment/*/trial/*/**/*") if path.is_file())


@pytest.mark.parametrize("mode", core.TensorboardMode)
def test_written_files_are_stored(mode: Any, tmp_path: Path) -> None:
    with core.init(checkpoint_storage=tmp_path, tensorboard_mode=mode) as context:
        board = TrialTensorboard(context.train)
        assert board.writer is board.writer
        assert board.path == context.train.get_tensorboard_path()
        (board.path / "host.1.pt.trace.json").write_text("{}")
        points = [(step, step / 2) for step in range(500)]  # more than the writer's thread writes before the upload
        for step, value in points:
            board.writer.add_scalar("x", value, step)
        board.upload()
        if mode is core.TensorboardMode.MANUAL:
            assert scalars(stored(tmp_path)[0].parent)["x"] == points
        board.writer.add_scalar("x", 2.0, 500)
        board.upload()
        board.close()
    files = stored(tmp_path)
    assert scalars(files[0].parent)["x"] == [*points, (500, 2.0)]
    assert "host.1.pt.trace.json" in [file.name for file in files]


def test_closing_alone_stores_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where the file stays
    with core.init(checkpoint_storage=tmp_path, tensorboard_mode=core.TensorboardMode.MANUAL) as context:
        board = TrialTensorboard(context.train)
        board.writer.add_scalar("x", 1.0, 1)
        board.close()
    assert stored(tmp_path) == []


def test_without_a_writer_there_is_no_event_file(tmp_path: Path) -> None:
    with core.init(checkpoint_storage=tmp_path, tensorboard_mode=core.TensorboardMode.MANUAL) as context:
        board = TrialTensorboard(context.train)
        board.upload()
        board.close()
    assert stored(tmp_path) == []


def test_traces_of_a_profiler_are_stored(tmp_path: Path) -> None:
    with core.init(checkpoint_storage=tmp_path, tensorboard_mode=core.TensorboardMode.MANUAL) as context:
        board = TrialTensorboard(context.train)
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU],
            on_trace_ready=torch.profiler.tensorboard_trace_handler(str(board.path), worker_name="w"),
        ):
            torch.ones(2).sum()
        board.upload()
        board.close()
    (trace,) = stored(tmp_path)
    assert trace.name.startswith("w.") and trace.name.endswith(".pt.trace.json")
    assert "aten::sum" in trace.read_text()


@pytest.mark.parametrize("mode", core.TensorboardMode)
def test_other_ranks_store_traces_under_their_own_names_and_no_curves(
    tmp_path: Path, mode: core.TensorboardMode
) -> None:
    with core.init(checkpoint_storage=tmp_path, tensorboard_mode=mode) as context:
        context.train._tensorboard._rank, context.train._tensorboard._by_itself = 1, False
        board = TrialTensorboard(context.train)
        directory = board.path
        board.writer.add_scalar("x", 1.0, 1)
        (board.path / "plugins").mkdir()
        (board.path / "plugins/w.pt.trace.json").write_text("{}")
        board.upload()
        board.close()
    (trace,) = stored(tmp_path)
    assert trace.parts[-2:] == ("plugins", "rank1.w.pt.trace.json")
    assert not directory.exists()


def test_the_older_name_of_the_writer_works(tmp_path: Path) -> None:
    with pytest.raises(InvalidTrial, match="in a trial that det runs"):
        TorchWriter().writer  # noqa: B018
    with core.init(checkpoint_storage=tmp_path) as context:
        board = TrialTensorboard(context.train)
        assert TorchWriter().writer is board.writer
        board.close()
    with pytest.raises(InvalidTrial, match="in a trial that det runs"):
        TorchWriter().writer  # noqa: B018


def test_a_missing_package_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with core.init(checkpoint_storage=tmp_path) as context:
        board = TrialTensorboard(context.train)
        with pytest.raises(InvalidTrial, match=r"install it: .*pip install tensorboard"):
            board.writer  # noqa: B018
        board.close()
