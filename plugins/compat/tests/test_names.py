"""Every documented name is importable under its old path."""

from __future__ import annotations

import pickle
import subprocess
import sys
from importlib import import_module
from operator import attrgetter
from typing import Any

import pytest
from determined import _old_names

from det_core.package_commands import package_command

NEEDS = {
    "det_tensorflow": "tensorflow",
    "determined._keras_native": "tensorflow",
    "determined._samplers": "torch",
    "det_torch": "torch",
    "det_keras": "tensorflow",
    "det_estimator": "tensorflow_estimator",
    "det_transformers": "transformers",
}

DOCUMENTED = {
    # TrialContext, release 0.17
    "determined.Trial": "det_core.trial:Trial",
    "determined.TrialContext": "det_core.trial:TrialContext",
    "determined.TrialContext.from_config": "det_core.trial:TrialContext.from_config",
    "determined._train_context.DistributedContext": "det_core.core:DistributedContext",
    "determined._train_context.TrialContext": "det_core.trial:TrialContext",
    "determined._trial.Trial": "det_core.trial:Trial",
    "determined._trial_context.TrialContext": "det_core.trial:TrialContext",
    "determined._info.RendezvousInfo": "det_core:RendezvousInfo",
    "determined.keras.TFKerasTrialContext": "det_keras:TFKerasTrialContext",
    "determined.pytorch.PyTorchTrialContext": "det_torch:PyTorchTrialContext",
    # PyTorchTrial, release 0.12
    "determined.pytorch.PyTorchTrial": "det_torch:PyTorchTrial",
    "determined.pytorch.PyTorchTrial.trial_context_class": "det_torch:PyTorchTrialContext",
    "determined.pytorch.DataLoader": "det_torch:DataLoader",
    "determined.pytorch.LRScheduler": "det_torch:LRScheduler",
    "determined.pytorch.LRScheduler.StepMode": "det_torch:LRScheduler.StepMode",
    "determined.pytorch.LRSchedulerStepMode": "det_torch:LRScheduler.StepMode",
    "determined.pytorch.Reducer": "det_torch:Reducer",
    "determined.pytorch.Reducer.AVG": "det_torch:Reducer.AVG",
    "determined.pytorch._data.DataLoader": "det_torch:DataLoader",
    "determined.pytorch._lr_scheduler.LRScheduler": "det_torch:LRScheduler",
    "determined.pytorch._reducer.Reducer": "det_torch:Reducer",
    # the SDK, release 0.12.13
    "determined.experimental.create_trial_instance": "det_core.experimental:create_trial_instance",
    "determined.experimental.Checkpoint": "det_core.experimental:Checkpoint",
    "determined.experimental.Determined": "det_core.experimental:Determined",
    "determined.experimental.ExperimentReference": "det_core.experimental:ExperimentReference",
    "determined.experimental.Model": "det_core.experimental:Model",
    "determined.experimental.ModelOrderBy": "det_core.experimental:ModelOrderBy",
    "determined.experimental.ModelSortBy": "det_core.experimental:ModelSortBy",
    "determined.experimental.TrialReference": "det_core.experimental:TrialReference",
    "determined.experimental.client.get_experiment": "det_core.experimental.client:get_experiment",
    "determined_common.experimental.checkpoint._checkpoint.Checkpoint": "det_core.experimental:Checkpoint",
    "determined_common.experimental.experiment.ExperimentReference": "det_core.experimental:ExperimentReference",
    "determined_common.experimental.model.Model": "det_core.experimental:Model",
    "determined_common.experimental.model.ModelOrderBy": "det_core.experimental:ModelOrderBy",
    "determined_common.experimental.model.ModelSortBy": "det_core.experimental:ModelSortBy",
    "determined_common.experimental.trial.TrialReference": "det_core.experimental:TrialReference",
    # the Core API, release 0.30
    "determined.ClusterInfo": "det_core:ClusterInfo",
    "determined.InvalidHP": "det_core.errors:InvalidHP",
    "determined.TrialInfo": "det_core:TrialInfo",
    "determined._info.ClusterInfo": "det_core:ClusterInfo",
    "determined.get_cluster_info": "det_core:get_cluster_info",
    "determined.core.init": "det_core.core:init",
    **{
        f"determined.core.{name}": f"det_core.core:{name}"
        for name in (
            *("CheckpointContext", "Context", "DistributedContext", "PreemptContext", "PreemptMode", "ProfilerContext"),
            *("SearcherContext", "SearcherMode", "SearcherOperation", "TensorboardMode", "TrainContext"),
        )
    },
    "determined.core._checkpoint.CheckpointContext": "det_core.core:CheckpointContext",
    "determined.core._checkpoint.DownloadMode": "det_core.core:DownloadMode",
    "determined.core._context.Context": "det_core.core:Context",
    "determined.core._distributed.DistributedContext": "det_core.core:DistributedContext",
    "determined.core._experimental.ExperimentalCoreContext": "det_core.core:ExperimentalCoreContext",
    "determined.core._preempt.PreemptContext": "det_core.core:PreemptContext",
    "determined.core._preempt.PreemptMode": "det_core.core:PreemptMode",
    "determined.core._profiler.ProfilerContext": "det_core.core:ProfilerContext",
    "determined.core._searcher.SearcherContext": "det_core.core:SearcherContext",
    "determined.core._searcher.SearcherMode": "det_core.core:SearcherMode",
    "determined.core._searcher.SearcherOperation": "det_core.core:SearcherOperation",
    "determined.core._searcher.Unit": "det_core.core:Unit",
    "determined.core._tensorboard_mode.TensorboardMode": "det_core.core:TensorboardMode",
    "determined.core._train.EarlyExitReason": "det_core.core:EarlyExitReason",
    "determined.core._train.TrainContext": "det_core.core:TrainContext",
    "determined.common.storage.base.StorageManager": "det_core.interfaces.storage:StorageManager",
    # batch inference, release 0.30
    **{
        f"determined.pytorch.experimental.{name}": f"det_torch.batch_processing:{name}"
        for name in ("TorchBatchProcessor", "TorchBatchProcessorContext", "get_default_device", "torch_batch_process")
    },
    # names that example code uses
    "determined.DistributedContext": "det_core.core:DistributedContext",
    "determined.create_trial_instance": "det_core.experimental:create_trial_instance",
    "determined.errors.InvalidModelException": "det_core.errors:InvalidTrial",
    "determined.estimator.EstimatorContext": "det_estimator:EstimatorTrialContext",
    "determined.experimental.client.OrderBy.ASC": "det_core.experimental:ModelOrderBy.ASCENDING",
    "determined.experimental.ModelOrderBy.DESC": "det_core.experimental:ModelOrderBy.DESCENDING",
    "determined.keras.TFKerasContext": "det_keras:TFKerasTrialContext",
    "determined.keras.TFKerasExperimentalContext": "det_tensorflow.context:TensorFlowExperimentalContext",
    "determined.pytorch.RepeatBatchSampler": "det_torch.samplers:RepeatBatchSampler",
    "determined.pytorch._SimpleReducer": "det_torch:MetricReducer",
    # EstimatorTrial, release 0.19
    "determined.estimator.EstimatorExperimentalContext": "det_estimator:EstimatorExperimentalContext",
    "determined.estimator.EstimatorTrial": "det_estimator:EstimatorTrial",
    "determined.estimator.EstimatorTrial.trial_context_class": "det_estimator:EstimatorTrialContext",
    "determined.estimator.EstimatorTrialContext": "det_estimator:EstimatorTrialContext",
    "determined.estimator.MetricReducer": "det_estimator:MetricReducer",
    "determined.estimator.RunHook": "det_estimator:RunHook",
    "determined.estimator._estimator_context.EstimatorTrialContext": "det_estimator:EstimatorTrialContext",
    "determined.estimator._reducer.MetricReducer": "det_estimator:MetricReducer",
    "determined.estimator.load_estimator_from_checkpoint_path": "det_estimator:load_estimator_from_checkpoint_path",
}
"""Old path -> new place of the object."""

TYPES_OF_PRIVATE_ARGUMENTS = (
    "determined._env_context.EnvContext",
    "determined._train_context.RankInfo",
    "determined.common.api._session.Session",
    "determined.core._heartbeat._Heartbeat",
    "determined.core._log_shipper._LogShipper",
    "determined.estimator._reducer._EstimatorReducerContext",
    "determined.horovod.HorovodContext",
    "determined.tensorboard.base.TensorboardManager",
    "determined.tensorboard.metric_writers.callback.BatchMetricWriter",
)
"""Types that documents show in signatures of objects that users do not construct."""


def find(path: str) -> Any:
    """Return the object at a path, as ``from a.b import c`` does for the longest a.b that is a module."""
    parts = path.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            module = import_module(".".join(parts[:end]))
        except ModuleNotFoundError as error:
            if not path.startswith(error.name or "?"):
                raise
        else:
            return attrgetter(".".join(parts[end:]))(module)
    raise AssertionError(path)


def skip_without(home: str) -> None:
    module = home.partition(":")[0]
    pytest.importorskip(NEEDS.get(module) or NEEDS.get(module.partition(".")[0], "det_core"))


@pytest.mark.parametrize("path", DOCUMENTED)
def test_a_documented_name_is_the_same_object(path: str) -> None:
    home, _, attributes = DOCUMENTED[path].partition(":")
    skip_without(home)
    theirs = attrgetter(attributes)(import_module(home))
    assert find(path) is theirs or (find(path) == theirs and callable(theirs))  # classmethods are bound anew


@pytest.mark.parametrize("path", TYPES_OF_PRIVATE_ARGUMENTS)
def test_errors_of_unsupported_names_say_what_to_use(path: str) -> None:
    with pytest.raises(ImportError, match="is not supported: ....."):
        find(path)


@pytest.mark.parametrize("name", _old_names.OLD_MODULES)
def test_every_module_of_the_table_has_its_names(name: str) -> None:
    old = _old_names.OLD_MODULES[name]
    home, names = old.home, old.names
    for place in (home, *names.values()):
        skip_without(place)
    module = import_module(name)
    assert module.__name__ == name
    for public in dir(module):
        if f"{name}.{public}" not in _old_names.OLD_MODULES:
            getattr(module, public)
    assert set(names) <= set(module.__all__) == set(dir(module))
    if home:
        assert set(import_module(home).__all__) <= set(module.__all__)


def test_a_module_is_an_attribute_of_its_package() -> None:
    import determined as det

    assert det.core is import_module("determined.core")
    assert det.core._distributed is import_module("determined.core._distributed")


@pytest.mark.parametrize("name", ["determined", "determined.common.storage", "determined.pytorch"])
def test_tools_may_look_up_dunder_names_that_a_module_does_not_have(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``unittest`` looks such names up. That must neither raise an ImportError nor import a framework."""
    module = import_module(name)
    monkeypatch.setitem(sys.modules, "det_torch", None)
    for asked in ("__warningregistry__", "__test__", "__wrapped__"):
        assert not hasattr(module, asked)


def test_a_star_import_gets_the_public_names() -> None:
    names: dict[str, Any] = {}
    exec("from determined.core import *", names)
    assert {"init", "Context", "DistributedContext"} < set(names)


def test_an_unknown_name_is_an_error() -> None:
    import determined.core

    with pytest.raises(AttributeError, match="'determined.core' has no attribute 'Foo'; docs/migrating.md"):
        _ = determined.core.Foo
    with pytest.raises(ImportError, match="cannot import name 'Foo' from 'determined.core'"):
        from determined.core import Foo  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match="determined.coer"):
        import determined.coer


def test_a_pickle_that_names_old_modules_can_be_loaded() -> None:
    stream = b"cdetermined.core._preempt\nPreemptMode\n(S'WORKERS_ASK_CHIEF'\ntR."
    assert pickle.loads(stream) is find("determined.core.PreemptMode").WorkersAskChief


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


@pytest.mark.integration
def test_importing_determined_imports_no_framework() -> None:
    heavy = "{'torch', 'tensorflow', 'numpy', 'det_torch', 'det_keras', 'det_estimator', 'sqlalchemy'}"
    modules = "determined, determined.core, determined.pytorch, determined.keras, determined.estimator"
    ran = run(f"import {modules}, determined_common, sys; print({heavy} & set(sys.modules))")
    assert ran.stdout == "set()\n", ran.stderr


@pytest.mark.integration
@pytest.mark.parametrize("package", ["torch", "keras", "estimator"])
def test_the_error_about_a_missing_plugin_says_what_to_install(package: str) -> None:
    old = {"torch": "pytorch"}.get(package, package)
    trial = {"torch": "PyTorchTrial", "keras": "TFKerasTrial", "estimator": "EstimatorTrial"}[package]
    absent = f"import sys; sys.modules['det_{package}'] = None; "
    ran = run(f"{absent}from determined.{old} import {trial}")
    last = ran.stderr.splitlines()[-1]
    place = f"determined.{old}.{trial} is in det_{package}"
    assert last == f"ImportError: {place}, which is not installed; type: {package_command('install', f'det-{package}')}"
