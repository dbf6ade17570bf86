"""Names that only old releases had, which are in det-compat itself."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import determined as det
import pytest
from determined import errors, experimental
from determined.common import check, yaml
from determined.common import util as common_util
from determined.util import download_gcs_blob_with_backoff, make_metrics, merge_dicts

from det_core.config import parse_config
from det_core.errors import InvalidTrial, StorageError
from det_core.storage import open_storage
from det_core.storage.config import DirectoryConfig
from det_core.trial import Trial


@pytest.mark.parametrize(
    ("name", "passing", "failing"),
    [
        ("true", (1,), ([],)),
        ("false", (0,), ("x",)),
        ("is_none", (None,), (0,)),
        ("is_not_none", (0,), (None,)),
        ("eq", (1, 1.0), (1, 2)),
        ("not_eq", (1, 2), (1, 1)),
        ("gt", (2, 1), (1, 1)),
        ("gt_eq", (1, 1), (0, 1)),
        ("lt", (1, 2), (1, 1)),
        ("lt_eq", (1, 1), (2, 1)),
        ("equal_lengths", ("ab", [1, 2]), ("a", "")),
        ("len_eq", ("ab", 2), ("ab", 3)),
        ("is_in", (1, [1]), (2, [1])),
        ("not_in", (2, [1]), (1, [1])),
        ("is_type", (1, int), (True, int)),
        ("is_instance", (True, int), ("1", int)),
        ("is_not_instance", ("1", int), (True, int)),
        ("is_subclass", (bool, int), (int, bool)),
    ],
)
def test_checks_raise_with_values_and_reason(name: str, passing: tuple[Any, ...], failing: tuple[Any, ...]) -> None:
    require = getattr(check, name)
    require(*passing)
    for arguments, keywords in ((failing, {"reason": "because"}), ((*failing, "because"), {})):
        with pytest.raises(check.CheckFailedError, match="because") as caught:
            require(*arguments, **keywords)
        assert all(repr(value) in str(caught.value) for value in failing)


def test_each_check_has_two_names() -> None:
    assert len([name for name in dir(check) if name.startswith("check_")]) == 18
    with pytest.raises(TypeError, match="2 values"):
        check.check_eq(1)


def test_functions_of_hyperparameters_make_blocks_of_a_config() -> None:
    config = parse_config(
        {
            "entrypoint": "model_def:Trial",
            "searcher": {"name": "random", "metric": "loss", "max_trials": 1, "max_length": {"batches": 1}},
            "hyperparameters": {
                "constant": det.Constant([1, 2]),
                "integer": det.Integer(1, 3),
                "double": det.Double(0.0, 0.5),
                "choice": det.Categorical(["a", "b"]),
                "log": det.Log(-4, -1),
            },
        }
    ).dump()["hyperparameters"]
    assert config["constant"] == {"type": "const", "val": [1, 2]}
    assert config["integer"] == {"type": "int", "minval": 1, "maxval": 3, "count": None}
    assert config["double"] == {"type": "double", "minval": 0.0, "maxval": 0.5, "count": None}
    assert config["choice"] == {"type": "categorical", "vals": ["a", "b"]}
    assert config["log"] == {"type": "log", "base": 10.0, "minval": -4.0, "maxval": -1.0, "count": None}


@pytest.mark.parametrize(
    ("mode", "in_process"),
    [("submit", False), ("test", True), (experimental.Mode.CLUSTER, False), (experimental.Mode.LOCAL, True)],
)
def test_the_mode_of_create_says_whether_to_test(mode: Any, in_process: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr("det_core.experimental.create", lambda *given: calls.append(given))
    det.create(Trial, {"a": 1}, mode=mode, context_dir=".")
    experimental.create(Trial, {"a": 1}, True, False, ".")
    assert calls == [
        (Trial, {"a": 1}, in_process, in_process, ".", None, None),
        (Trial, {"a": 1}, True, False, ".", None, None),
    ]


def test_test_one_batch_needs_a_trial_class() -> None:
    with pytest.raises(InvalidTrial, match="trial_def is None"):
        experimental.test_one_batch(config={})


def test_exceptions_have_the_old_constructors() -> None:
    error = errors.InvalidDataTypeException(dict, "expected a list")
    assert str(error) == "Invalid data type (dict): expected a list."
    assert isinstance(error, errors.InvalidExperimentException)
    assert str(errors.InvalidConfigurationException({}, "empty")) == "Invalid configuration ({}): empty."


class Blob:
    def __init__(self, failures: int) -> None:
        self.failures = failures

    def download_as_bytes(self) -> bytes:
        self.failures -= 1
        if self.failures >= 0:
            raise OSError("unavailable")
        return b"content"


def test_downloads_are_repeated() -> None:
    assert download_gcs_blob_with_backoff(Blob(2), n_retries=3, max_backoff=0) == b"content"
    with pytest.raises(StorageError, match=r"failed 3 times; the last error was: OSError\('unavailable'\)"):
        download_gcs_blob_with_backoff(Blob(3), n_retries=3, max_backoff=0)


def test_metrics_of_batches_are_averaged() -> None:
    batches = [{"loss": 1, "text": "a"}, {"loss": 4, "text": "b"}]
    assert make_metrics(7, batches) == {
        "batch_metrics": batches,
        "avg_metrics": {"loss": 2.5, "text": None},
        "num_inputs": 7,
    }
    with pytest.raises(ValueError, match=r"batch 1 has the metrics \['b'\] but batch 0 has \['a'\]"):
        make_metrics(None, [{"a": 1}, {"b": 1}])


def test_dicts_are_merged_recursively() -> None:
    base = {"a": {"b": 1, "c": [2]}, "d": 3}
    assert merge_dicts(base, {"a": {"b": 4}, "d": {"e": 5}}) == {"a": {"b": 4, "c": [2]}, "d": {"e": 5}}
    assert base == {"a": {"b": 1, "c": [2]}, "d": 3}


def test_yaml_can_be_read_and_written() -> None:
    text = common_util.yaml_safe_dump({"a": [1, 2]})
    assert common_util.yaml_safe_load(text) == {"a": [1, 2]}
    assert yaml.YAML(typ="safe").load(text) == {"a": [1, 2]}
    with pytest.raises(SystemExit, match="invalid YAML: while parsing"):
        common_util.safe_load_yaml_with_exceptions("{a: 1")


class TestDummyContexts:
    def test_checkpoints_are_stored_and_restored(self, tmp_path: Path) -> None:
        manager = open_storage("directory", DirectoryConfig(container_path=tmp_path / "stored"))
        checkpoints = det.core.DummyCheckpointContext(det.core.DummyDistributedContext(), manager)
        with checkpoints.store_path({"steps_completed": 3}) as (path, storage_id):
            (path / "weights").write_text("1")
        assert checkpoints.get_metadata(storage_id) == {"steps_completed": 3}
        with checkpoints.restore_path(storage_id) as path:
            assert (path / "weights").read_text() == "1"
            other = checkpoints.upload(path, {}, selector=lambda name: name == "weights")
        checkpoints.download(other, tmp_path / "copy")
        assert (tmp_path / "copy" / "weights").read_text() == "1"
        checkpoints.delete(other)
        with pytest.raises(errors.CheckpointNotFound):
            checkpoints.download(other, tmp_path / "another")

    def test_there_is_one_operation(self) -> None:
        searcher = det.core.DummySearcherContext(det.core.DummyDistributedContext(), length=3)
        for operation in searcher.operations():
            assert operation.length == 3
            operation.report_progress(2)
            operation.report_completed(0.5)
        with pytest.raises(RuntimeError, match="the operation was not completed"):
            list(searcher.operations())

    def test_reports_go_to_the_log(self, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
        train = det.core.DummyTrainContext(tmp_path)
        with caplog.at_level(logging.INFO, "det.core"):
            train.report_training_metrics(1, {"loss": 2})
            train.report_validation_metrics(1, {"loss": 3})
            train.set_status("reading")
        assert caplog.messages == [
            "training metrics after 1 steps: {'loss': 2}",
            "validation metrics after 1 steps: {'loss': 3}",
            "status: reading",
        ]
        assert train.get_tensorboard_path() == tmp_path
        assert train.get_experiment_best_validation() is None

    def test_nothing_asks_to_stop(self) -> None:
        ranks = det.core.DummyDistributedContext()
        with det.core.DummyPreemptContext(ranks).start() as preempt:
            assert preempt.should_preempt() is False

    def test_the_missing_searcher_explains_itself(self) -> None:
        searcher = det.core.SearcherContextMissing()
        for method in (searcher.operations, searcher.acknowledge_out_of_ops, searcher.get_configured_units):
            with pytest.raises(ValueError, match="no max_length; add one"):
                method()


class TestSamplers:
    BATCHES = ((0, 1), (2, 3), (4, 5))

    def test_skipped_batches_do_not_count(self) -> None:
        pytest.importorskip("torch")
        from determined import pytorch

        assert len(pytorch.SkipBatchSampler(self.BATCHES, 2)) == 1
        assert len(pytorch.SkipBatchSampler(self.BATCHES, 2, same_length=True)) == 3
        assert list(pytorch.SkipBatchSampler(self.BATCHES, 2)) == [(4, 5)]

    def test_the_number_of_replicas_is_an_argument(self) -> None:
        pytest.importorskip("torch")
        from determined import pytorch

        assert list(pytorch.DistributedBatchSampler(self.BATCHES, num_replicas=2, rank=0)) == [(0, 1), (4, 5)]


WRAP = (sys.executable, "-m", "determined.launch.wrap_rank")


@pytest.mark.integration
class TestWrapRank:
    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **variables}
        return subprocess.run([*WRAP, *arguments], capture_output=True, text=True, timeout=60, env=environment)

    def test_each_line_has_the_rank(self) -> None:
        code = "import sys; print('a\\rb\\nc'); print('d', end='', file=sys.stderr); sys.exit(3)"
        ran = self.run("--no-redirect-stdio", "OTHER,RANK", sys.executable, "-c", code, RANK="7")
        assert (ran.stdout, ran.stderr) == ("[rank=7] a\n[rank=7] b\n[rank=7] c\n", "[rank=7] d\n")
        assert ran.returncode == 3

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [(("NONE", "true"), "none of these environment variables is set"), (("1",), "expected a command after RANK")],
    )
    def test_wrong_arguments_are_explained(self, arguments: tuple[str, ...], message: str) -> None:
        ran = self.run(*arguments)
        assert ran.returncode == 2
        assert message in ran.stderr

    def test_signals_reach_the_command(self) -> None:
        code = "import signal, time; print('ready', flush=True); signal.pause()"
        with subprocess.Popen([*WRAP, "0", sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "[rank=0] ready\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 128 + signal.SIGTERM


def test_arrays_become_a_sequence_of_batches() -> None:
    pytest.importorskip("tensorflow")
    numpy = pytest.importorskip("numpy")
    from determined import keras

    x, y = {"a": numpy.arange(10)}, [numpy.arange(10, 20)]
    assert len(keras._ArrayLikeAdapter(x, y, batch_size=4, drop_leftovers=True)) == 2
    batches = keras._ArrayLikeAdapter(x, y, 4, sample_weights=numpy.ones(10))
    inputs, targets, weights = batches[2]
    assert (len(batches), list(inputs["a"]), list(targets[0]), len(weights)) == (3, [8, 9], [18, 19], 2)
    with pytest.raises(ValueError, match="at least 32, a batch"):
        keras._ArrayLikeAdapter(numpy.arange(16), numpy.arange(16), batch_size=32)
    with pytest.raises(errors.InvalidDataTypeException, match="expected a NumPy array"):
        keras._ArrayLikeAdapter(None, y, 1)
