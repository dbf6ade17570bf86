"""Every old module, where its names are now, and what is not supported."""

from __future__ import annotations

from typing import Final, NamedTuple


class Module(NamedTuple):
    """An old module.

    Attributes:
        home: the module whose public names it has; empty for a package of modules only.
        names: what is not in its home under this name, as ``module:attribute``.
    """

    home: str
    names: dict[str, str] = {}  # noqa: RUF012  (nobody changes it)


_SDK = "det_core.experimental"

_PUBLIC = {
    "determined": Module("det_core"),
    "determined.common": Module(""),
    "determined.common.experimental": Module(_SDK),
    "determined.common.storage": Module("", {"StorageManager": "det_core.interfaces.storage:StorageManager"}),
    "determined.core": Module("det_core.core"),
    "determined.errors": Module(
        "",
        {
            "CheckpointNotFound": "det_core.errors:CheckpointNotFound",
            "InvalidExperimentException": "det_core.errors:InvalidExperimentException",
            "NoDirectStorageAccess": "det_core.errors:StorageError",
        },
    ),
    "determined.estimator": Module("det_estimator"),
    "determined.experimental": Module(_SDK),
    "determined.experimental.client": Module("det_core.experimental.client"),
    "determined.keras": Module("det_keras"),
    "determined.keras.callbacks": Module("det_keras.callbacks"),
    "determined.pytorch": Module(
        "det_torch",
        {
            "LRSchedulerStepMode": "det_torch:LRScheduler.StepMode",
            "adapt_batch_sampler": "det_torch.samplers:adapt_batch_sampler",
        },
    ),
    "determined.pytorch.samplers": Module("det_torch.samplers"),
    "determined.tensorboard": Module(""),
    "determined.tensorboard.metric_writers": Module(""),
    "determined.tensorboard.metric_writers.pytorch": Module("", {"TorchWriter": "det_torch:TorchWriter"}),
    "determined_common": Module(""),
    "determined_common.experimental": Module(_SDK),
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
"""Package -> modules below it whose names documents and pickles spell out; each has those of the package."""

MODULES: Final = {
    **_PUBLIC,
    **{f"{package}.{name}": _PUBLIC[package] for package, names in _PRIVATE.items() for name in names.split()},
}
for _module in ("determined._train_context", "determined._trial_context"):
    MODULES[_module] = Module("det_core", {"DistributedContext": "det_core.core:DistributedContext"})

_NO_MASTER = "there is no master; experiments, trials, checkpoints and models are in determined.experimental.client"
_BY_FACTORY = "contexts come from core.init() and from_config(), which need none of it"
_CORE_API = "a script on the Core API (determined.core) reports, checkpoints and resumes with any library"

GONE: Final = {
    "determined._env_context": _BY_FACTORY,
    "determined._train_context.RankInfo": "pass rank, size, local_rank, … to DistributedContext, or use from_horovod",
    "determined.cli": "the command is det",
    "determined.common.api": _NO_MASTER,
    "determined.common.storage.SharedFSStorageManager": "give the directory to core.init(checkpoint_storage=…)",
    "determined.common.storage.build": "give the block to core.init(checkpoint_storage=…)",
    "determined.core._heartbeat": _BY_FACTORY,
    "determined.core._log_shipper": _BY_FACTORY,
    "determined.deploy": "nothing has to be deployed; det run CONFIG trains here",
    "determined.estimator._reducer._EstimatorReducerContext": "its methods are those of EstimatorTrialContext",
    "determined.experimental.core_v2": "call core.init() in a script: recorded under det run, and working without it",
    "determined.experimental.unmanaged": "call core.init() in a script: recorded under det run, and working without it",
    "determined.horovod": "import horovod.torch or horovod.tensorflow as hvd; det initialises it",
    "determined.keras.DeterminedCallback": f"write a TFKerasTrial; or, {_CORE_API}",
    "determined.pytorch.CheckpointLoadContext": "PyTorchTrialContext.from_config(config) is a context without training",
    "determined.pytorch.ClipGradsL2Norm": "pass clip_grads to context.step_optimizer",
    "determined.pytorch.ClipGradsL2Value": "pass clip_grads to context.step_optimizer",
    "determined.pytorch.data_length": "it is the length of any tensor of the batch",
    "determined.pytorch.deepspeed": "write a PyTorchTrial and set distributed: {backend: deepspeed}",
    "determined.pytorch.lightning": f"write a PyTorchTrial around the module's steps; or, {_CORE_API}",
    "determined.searcher": "a search method of your own: searcher: {name: custom}, see docs/search.md",
    "determined.tensorboard.base": _BY_FACTORY,
    "determined.tensorboard.metric_writers.callback": "reported metrics go to TensorBoard by themselves",
    "determined.tensorboard.metric_writers.tensorflow": "reported metrics go to TensorBoard by themselves",
    "determined.transformers": _CORE_API,
}
"""Old module, or name in one -> what to use instead."""
