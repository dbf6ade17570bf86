"""``det migrate check`` finds what will not work in a directory, without running its code."""

from __future__ import annotations

import importlib.util
import json
from operator import attrgetter
from pathlib import Path

import pytest
from determined import _old_names
from determined._migration import code_check, command
from determined._migration.findings import Finding
from determined._migration.tensorflow_names import explain_tensorflow_name

from det_core import cli
from det_core.errors import DetError
from det_core.package_commands import package_command

from .test_docs import DIRECTORIES
from .test_names import DOCUMENTED, skip_without


def messages(source: str) -> list[str]:
    return [str(finding) for finding in code_check.check_code(source, "m.py")]


def write(directory: Path, **files: str) -> Path:
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(text)
    return directory


class TestNames:
    @pytest.mark.parametrize(
        ("source", "expected"),
        [
            ("from determined.pytorch import PyTorchTrial, DataLoader", None),
            ("import determined as det\ndet.pytorch.samplers.SkipBatchSampler", None),
            ("from determined.util import merge_dicts", None),
            ("from determined.launch import torch_distributed", None),
            ("from determined.constants import DEFAULT_EXP_CFG", None),
            ("import determined.horovod", "m.py:1: determined.horovod is not supported: import horovod.torch"),
            ("from determined import horovod as h", "m.py:1: determined.horovod is not supported"),
            ("import determined as det\n\ndet.layers.X", "m.py:3: determined.layers is not supported"),
            (
                "from determined import pytorch\nclass T(pytorch.Foo): pass",
                "m.py:2: det has no determined.pytorch.Foo;",
            ),
            ("from determined.pytorch.lightning import *", "m.py:1: determined.pytorch.lightning is planned, but"),
            ("from determined.util import humanize_float", "m.py:1: determined.util.humanize_float is not supported"),
            ("from determined.launch import tensorflow", "m.py:1: determined.launch.tensorflow is not supported"),
            ("import determined.unheard_of", "m.py:1: det has no determined.unheard_of"),
            ("import determined.core\ndef f(determined): determined.nothing", None),
        ],
    )
    def test_names_that_do_not_exist_are_found(self, source: str, expected: str | None) -> None:
        pytest.importorskip("torch")
        found = messages(source)
        assert len(found) == (expected is not None), found
        assert not expected or found[0].startswith(expected)

    @pytest.mark.parametrize("path", DOCUMENTED)
    def test_documented_names_exist(self, path: str) -> None:
        skip_without(DOCUMENTED[path])
        assert code_check.explain_name(path) is None

    @pytest.mark.parametrize("path", [*_old_names.PLANNED_NAMES, *_old_names.UNSUPPORTED_NAMES])
    def test_missing_names_have_the_message_of_their_import(self, path: str) -> None:
        path = path.replace("*", "anything")
        assert code_check.explain_name(path) == _old_names.explain_missing(path)

    def test_a_name_is_listed_once_per_file(self) -> None:
        assert len(messages("from determined import horovod\nhorovod.a\nhorovod.b")) == 1

    def test_a_plugin_that_is_not_installed_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def absent(home: str) -> list[str]:
            raise ModuleNotFoundError(name="det_torch")

        monkeypatch.setattr(code_check, "_exported", absent)
        (message,) = messages("from determined.pytorch import PyTorchTrial")
        command = package_command("install", "det-torch")
        assert message.endswith(f"is in det_torch, which is not installed; type: {command}")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import determined.core as c\nc.init(storage=1)", "determined.core.init() has no argument storage; its arg"),
        (
            "from determined.experimental import create as go\ngo(T, mode='test', tests=1)",
            "create() has no argument te",
        ),
        ("import tensorflow as tf\ntf.contrib.layers.x()", "tensorflow.contrib: TensorFlow 2 removed it"),
        ("import tensorflow as tf\ntf.compat.v1.placeholder()", None),
        ("from torch._six import int_classes", "torch._six: torch 2 removed it"),
        ("import numpy as np\nx = np.float(1), np.float32(2)", "numpy.float: NumPy 1.24 removed it"),
        ("self.context.wrap_model_engine(e)", "self.context.wrap_model_engine: det has no DeepSpeedTrial yet"),
        ("print 'a'", "this is no Python 3 code"),
    ],
)
def test_arguments_members_and_versions_are_checked(source: str, expected: str | None) -> None:
    found = messages(source)
    assert len(found) == (expected is not None), found
    assert not expected or expected in found[0]


class TestTensorFlow:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        if importlib.util.find_spec("tensorflow") is None:
            pytest.skip("TensorFlow is not installed")

    @pytest.mark.parametrize(
        ("source", "expected"),
        [
            (
                "tf.estimator.BoostedTreesClassifier(x)",
                "tensorflow.estimator.BoostedTreesClassifier: TensorFlow 2",
            ),
            ("tf.train.get_global_step()", "TensorFlow 2 has it only as tensorflow.compat.v1.train.get_global_step"),
            ("tf.metrics.mean(x)", "TensorFlow 2 has it only as tensorflow.compat.v1.metrics.mean"),
            ("tf.keras.wrappers.scikit_learn.KerasClassifier", "tensorflow.keras.wrappers: TensorFlow 2.15 does not"),
            ("from tensorflow.python.keras.datasets.cifar import load_batch", "tensorflow.python.keras.datasets: "),
            ("from tensorflow.python.keras.utils.data_utils import get_file", None),
            ("from tensorflow.core.protobuf import config_pb2", None),
            ("tf.keras.optimizers.legacy.SGD(lr=1), tf.losses.Loss, tf.float32, tf.__version__", None),
            ("tf.estimator.Estimator, tf.data.Dataset.range(3), tf.summary.scalar, tf.compat.v1.Session", None),
        ],
    )
    def test_names_that_it_does_not_have_are_found(self, source: str, expected: str | None) -> None:
        found = messages(f"import tensorflow as tf\n{source}")
        assert len(found) == (expected is not None), found
        assert not expected or expected in found[0]

    def test_all_its_public_names_are_known(self) -> None:
        tf = pytest.importorskip("tensorflow")
        paths = ["data", "estimator", "keras", "keras.layers", "keras.optimizers", "losses", "metrics", "nn", "train"]
        modules = {"tensorflow": tf, **{f"tensorflow.{path}": attrgetter(path)(tf) for path in paths}}
        names = [f"{path}.{name}" for path, module in modules.items() for name in dir(module) if name[0] != "_"]
        assert len(names) > 700
        assert [message for name in names if (message := explain_tensorflow_name(name))] == []


CONFIG = """
name: old
hyperparameters: {global_batch_size: 8}
searcher: {name: single, metric: loss, max_length: {batches: 1}, smaler_is_better: true}
environment: {image: "determinedai/environments:cuda-10.0-pytorch-1.4-tf-1.15-gpu-0.5.0"}
entrypoint: python3 -m determined.launch.tensorflow python3 train.py
"""


def test_configs_requirements_and_hooks_are_checked(tmp_path: Path) -> None:
    write(
        tmp_path,
        const__yaml=CONFIG,
        other__yaml="a: [1",
        notes__yml="a: 1",
        requirements__txt="determined==0.38.1\nnumpy\ntorch==1.4.0  # old\n",
    )
    (tmp_path / "startup-hook.sh").write_text("apt-get update\npip install 'torch<2' scikit-learn\n")
    found = list(command.check_directory(tmp_path))
    assert [(one.file, one.line, one.kind, one.is_problem) for one in found] == [
        ("const.yaml", None, "entrypoint", True),
        ("const.yaml", None, "version", False),
        ("const.yaml", 4, "config", True),
        ("requirements.txt", 1, "version", True),
        ("requirements.txt", 3, "version", True),
        ("startup-hook.sh", None, "file", False),
        ("startup-hook.sh", 2, "version", True),
    ]
    assert "searcher.smaler_is_better" in found[2].message
    assert found[4].message.startswith("torch==1.4.0: det needs torch>=")


def test_ignored_keys_are_notes(tmp_path: Path) -> None:
    write(
        tmp_path,
        const__yaml=CONFIG.replace("smaler", "smaller").replace("tf-1.15", "").replace("tensorflow", "horovod"),
    )
    (note,) = command.check_directory(tmp_path)
    assert note == Finding(
        "const.yaml", None, "config", "these keys have no effect and are ignored: environment.image", is_problem=False
    )


@pytest.mark.parametrize("directory", sorted(DIRECTORIES.iterdir()), ids=lambda path: path.name)
def test_directories_that_run_have_no_problems(directory: Path) -> None:
    pytest.importorskip("torch")
    assert [str(one) for one in command.check_directory(directory) if one.is_problem] == []


class TestCommand:
    def test_problems_are_printed(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        write(tmp_path, model_def__py="import determined.deploy\nraise SystemExit('this must not run')")
        assert cli.main(["migrate", "check", str(tmp_path)]) == 1
        assert capsys.readouterr().out == (
            "model_def.py:1: determined.deploy is not supported: no deployment is needed; det run CONFIG trains on "
            "this machine\n1 problem, 0 notes\n"
        )

    def test_the_list_is_available_as_json(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        write(tmp_path, model_def__py="import determined.deploy\n")
        assert cli.main(["migrate", "check", str(tmp_path), "--json"]) == 1
        report = json.loads(capsys.readouterr().out)
        assert report["ok"] is False
        (finding,) = report["findings"]
        assert (finding["file"], finding["line"], finding["kind"]) == ("model_def.py", 1, "name")

    def test_a_directory_without_problems_ends_with_0(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        write(tmp_path, model_def__py="import os\n")
        assert cli.main(["migrate", "check", str(tmp_path)]) == 0
        assert capsys.readouterr().out == "0 problems, 0 notes\n"

    def test_a_missing_directory_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(DetError, match="there is no directory"):
            list(command.check_directory(tmp_path / "missing"))
