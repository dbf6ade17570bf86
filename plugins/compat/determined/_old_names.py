"""Tables of old modules, the new places of their names, and unsupported names."""

from __future__ import annotations

from typing import Final, NamedTuple


class OldModule(NamedTuple):
    """Old module.

    Attributes:
        home: the new module with the same public names, or empty for a package that contains only modules.
        names: names that are elsewhere, with their places as ``module:attribute``.
    """

    home: str
    names: dict[str, str] = {}  # noqa: RUF012  (never modified)


_SDK = "det_core.experimental"

_PUBLIC = {
    "determined": OldModule("det_core"),
    "determined.common": OldModule(""),
    "determined.common.experimental": OldModule(_SDK),
    "determined.common.storage": OldModule("", {"StorageManager": "det_core.interfaces.storage:StorageManager"}),
    "determined.core": OldModule("det_core.core"),
    "determined.errors": OldModule(
        "",
        {
            "CheckpointNotFound": "det_core.errors:CheckpointNotFound",
            "InvalidExperimentException": "det_core.errors:InvalidExperimentException",
            "NoDirectStorageAccess": "det_core.errors:StorageError",
        },
    ),
    "determined.estimator": OldModule("det_estimator"),
    "determined.experimental": OldModule(_SDK),
    "determined.experimental.client": OldModule("det_core.experimental.client"),
    "determined.keras": OldModule("det_keras"),
    "determined.keras.callbacks": OldModule("det_keras.callbacks"),
    "determined.pytorch": OldModule(
        "det_torch",
        {
            "LRSchedulerStepMode": "det_torch:LRScheduler.StepMode",
            "adapt_batch_sampler": "det_torch.samplers:adapt_batch_sampler",
        },
    ),
    "determined.pytorch.samplers": OldModule("det_torch.samplers"),
    "determined.tensorboard": OldModule(""),
    "determined.tensorboard.metric_writers": OldModule(""),
    "determined.tensorboard.metric_writers.pytorch": OldModule("", {"TorchWriter": "det_torch:TorchWriter"}),
    "determined_common": OldModule(""),
    "determined_common.experimental": OldModule(_SDK),
}

_PRIVATE = {
    "determined": "_info _trial _trial_context _train_context",
    "determined.common.experimental": "checkpoint checkpoint._checkpoint determined experiment model trial",
    "determined.common.storage": "base",
    "determined.core": (
        "_checkpoint _context _distributed _experimental _preempt _profiler _searcher _tensorboard_mode _train"
    ),
    "determined.estimator": "_estimator_context _estimator_trial _load _reducer",
    "determined.experimental": "_native",
    "determined.keras": "_data _load _tf_keras_context _tf_keras_trial",
    "determined.pytorch": (
        "_callback _data _experimental _load _lr_scheduler _pytorch_context _pytorch_trial _reducer _trainer"
    ),
    "determined_common.experimental": "checkpoint checkpoint._checkpoint determined experiment model trial",
}
"""Package -> private modules in it that documents and pickles name. Each has the names of the package."""

OLD_MODULES: Final = {
    **_PUBLIC,
    **{f"{package}.{name}": _PUBLIC[package] for package, names in _PRIVATE.items() for name in names.split()},
}
for _module in ("determined._train_context", "determined._trial_context"):
    OLD_MODULES[_module] = OldModule("det_core", {"DistributedContext": "det_core.core:DistributedContext"})

PREPARATIONS: Final = {"det_keras": "det_tensorflow.old_arguments:accept_old_arguments"}
"""New module -> function to call when old code uses one of its names, as ``module:attribute``."""

_NO_MASTER = "there is no master; experiments, trials, checkpoints and models are in determined.experimental.client"
_BY_FACTORY = "create contexts with core.init() and from_config(), which do not need it"
_CORE_API = "use the Core API (determined.core) in a script, which works with any library"

UNSUPPORTED_NAMES: Final = {
    "determined._env_context": _BY_FACTORY,
    "determined._train_context.RankInfo": "pass rank, size, local_rank, … to DistributedContext, or use from_horovod",
    "determined.cli": "use the command det",
    "determined.common.api": _NO_MASTER,
    "determined.common.storage.SharedFSStorageManager": "pass the directory to core.init(checkpoint_storage=…)",
    "determined.common.storage.build": "pass the config block to core.init(checkpoint_storage=…)",
    "determined.core._heartbeat": _BY_FACTORY,
    "determined.core._log_shipper": _BY_FACTORY,
    "determined.deploy": "no deployment is needed; det run CONFIG trains on this machine",
    "determined.estimator._reducer._EstimatorReducerContext": "use EstimatorTrialContext, which has its methods",
    "determined.experimental.core_v2": "call core.init() in a script, which works with and without det run",
    "determined.experimental.unmanaged": "call core.init() in a script, which works with and without det run",
    "determined.horovod": "import horovod.torch or horovod.tensorflow as hvd; det initializes it",
    "determined.keras.DeterminedCallback": f"write a TFKerasTrial, or {_CORE_API}",
    "determined.pytorch.CheckpointLoadContext": "PyTorchTrialContext.from_config(config) makes one without training",
    "determined.pytorch.ClipGradsL2Norm": "pass clip_grads to context.step_optimizer",
    "determined.pytorch.ClipGradsL2Value": "pass clip_grads to context.step_optimizer",
    "determined.pytorch.data_length": "use the length of any tensor in the batch",
    "determined.pytorch.deepspeed": "write a PyTorchTrial and set distributed: {backend: deepspeed}",
    "determined.pytorch.lightning": f"write a PyTorchTrial around the module's steps, or {_CORE_API}",
    "determined.searcher": "set searcher: {name: custom} to use your own search method, see docs/search.md",
    "determined.tensorboard.base": _BY_FACTORY,
    "determined.tensorboard.metric_writers.callback": "reported metrics are written for TensorBoard automatically",
    "determined.tensorboard.metric_writers.tensorflow": "reported metrics are written for TensorBoard automatically",
    "determined.transformers": _CORE_API,
}
"""Old module, or name in one -> advice on what to use instead."""
