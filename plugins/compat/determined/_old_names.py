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


def _in(place: str, names: str) -> dict[str, str]:
    return {name: f"{place}:{name}" for name in names.split()}


_SDK_NAMES = {
    "DownloadMode": "det_core.core:DownloadMode",
    "Experiment": f"{_SDK}:ExperimentReference",
    "ExperimentState": "det_core.interfaces.records:State",
    "OrderBy": f"{_SDK}:ModelOrderBy",
    "TrainingMetrics": f"{_SDK}:TrialMetrics",
    "Trial": f"{_SDK}:TrialReference",
    "TrialState": "det_core.interfaces.records:State",
    "ValidationMetrics": f"{_SDK}:TrialMetrics",
}

_PUBLIC = {
    "determined": OldModule(
        "det_core",
        _in("determined._hyperparameters", "Categorical Constant Double Integer Log")
        | _in("determined._native_api", "Mode create")
        | _in("det_core.experimental", "create_trial_instance")
        | {
            "DistributedContext": "det_core.core:DistributedContext",
            "LegacyTrial": "det_core:Trial",
        },
    ),
    "determined.common": OldModule("", _in("determined._common_utilities", "set_logger yaml")),
    "determined.common.check": OldModule("determined._checks"),
    "determined.common.experimental": OldModule(_SDK, _SDK_NAMES),
    "determined.common.storage": OldModule("", {"StorageManager": "det_core.interfaces.storage:StorageManager"}),
    "determined.common.util": OldModule(
        "",
        _in(
            "determined._common_utilities",
            "_LEGACY_TRAINING _LEGACY_VALIDATION safe_load_yaml_with_exceptions yaml yaml_safe_dump yaml_safe_load",
        ),
    ),
    "determined.core": OldModule(
        "det_core.core",
        _in(
            "determined._dummy_contexts",
            "DummyCheckpointContext DummyDistributedContext DummyExperimentalCoreContext DummyPreemptContext "
            "DummyProfilerContext DummySearcherContext DummySearcherOperation DummyTrainContext SearcherContextMissing",
        ),
    ),
    "determined.errors": OldModule(
        "",
        {
            "CheckpointNotFound": "det_core.errors:CheckpointNotFound",
            "CheckpointStateException": "det_core.errors:TrackingError",
            "InvalidCheckpointException": "det_core.errors:CheckpointCorrupt",
            "InvalidExperimentException": "det_core.errors:InvalidExperimentException",
            "InvalidModelException": "det_core.errors:InvalidTrial",
            "MultipleDownloadsFailed": "det_core.errors:StorageError",
            "NoDirectStorageAccess": "det_core.errors:StorageError",
            "ProxiedDownloadFailed": "det_core.errors:StorageError",
            **_in("determined._exceptions", "InvalidConfigurationException InvalidDataTypeException"),
        },
    ),
    "determined.estimator": OldModule(
        "det_estimator",
        {
            "EstimatorContext": "det_estimator:EstimatorTrialContext",
            "ServingInputReceiverFn": "determined._tensorflow_types:ServingInputReceiverFn",
        },
    ),
    "determined.experimental": OldModule(
        _SDK,
        _in("determined._native_api", "Mode create") | {"test_one_batch": "determined._native_api:train_one_batch"},
    ),
    "determined.experimental.client": OldModule("det_core.experimental.client", _SDK_NAMES),
    "determined.experimental.keras": OldModule("", _in("determined._keras_native", "init")),
    "determined.keras": OldModule(
        "det_keras",
        {
            "TFKerasContext": "det_keras:TFKerasTrialContext",
            "TFKerasExperimentalContext": "det_tensorflow.context:TensorFlowExperimentalContext",
            **_in("determined._tensorflow_types", "ArrayLike TFKerasTrainConfig"),
            "_ArrayLikeAdapter": "determined._keras_sequences:ArrayLikeAdapter",
            "TFKerasNativeContext": "determined._keras_native:NativeContext",
            "init": "determined._keras_native:init",
        },
    ),
    "determined.keras.callbacks": OldModule("det_keras.callbacks"),
    "determined.pytorch": OldModule(
        "det_torch",
        {
            "LRSchedulerStepMode": "det_torch:LRScheduler.StepMode",
            "_SimpleReducer": "det_torch:MetricReducer",
            **_in("determined._samplers", "DistributedBatchSampler SkipBatchSampler"),
            **_in("det_torch.samplers", "RepeatBatchSampler adapt_batch_sampler"),
        },
    ),
    "determined.pytorch.experimental": OldModule("det_torch.batch_processing"),
    "determined.pytorch.samplers": OldModule("det_torch.samplers"),
    "determined.tensorboard": OldModule(""),
    "determined.tensorboard.metric_writers": OldModule(""),
    "determined.tensorboard.metric_writers.pytorch": OldModule("", {"TorchWriter": "det_torch:TorchWriter"}),
    "determined.transformers": OldModule("det_transformers"),
    "determined.transformers.experimental": OldModule("det_transformers"),
    "determined.util": OldModule("determined._utilities"),
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
    "determined.pytorch.experimental": "_torch_batch_process",
    "determined.transformers": "_hf_callback",
}
"""Package -> private modules in it that documents and pickles name. Each has the names of the package."""

OLD_MODULES: Final = {
    **_PUBLIC,
    **{f"{package}.{name}": _PUBLIC[package] for package, names in _PRIVATE.items() for name in names.split()},
}
_COMMON, _OLD_COMMON = "determined.common", "determined_common"
OLD_MODULES.update(
    {_OLD_COMMON + name.removeprefix(_COMMON): old for name, old in OLD_MODULES.items() if name.startswith(_COMMON)}
)
for _module in ("determined._train_context", "determined._trial_context"):
    OLD_MODULES[_module] = OldModule("det_core", {"DistributedContext": "det_core.core:DistributedContext"})

PREPARATIONS: Final = {
    "det_core.core": "determined._missing_methods:explain_missing_methods",
    "det_keras": "det_tensorflow.old_arguments:accept_old_arguments",
}
"""New module -> function to call when old code uses one of its names, as ``module:attribute``."""

_AUTOMATIC_TENSORBOARD = "reported metrics are written for TensorBoard automatically"
_ACCOUNTS = "accounts are those of a det server, with the commands det user, det login and det logout"
_BY_FACTORY = "create contexts with core.init() and from_config(), which do not need it"
_CONTROLLER = "write a trial of a framework, or use the Core API (determined.core) in a script"
_CORE_API = "use the Core API (determined.core) in a script, which works with any library"
_INTERNAL = "it was an internal part of the old platform; remove the import"
_MULTI_WORKER = "write a TFKerasTrial, and set distributed: {backend: horovod} for several slots"
_NATIVE = "write a trial class, and pass it to determined.experimental.create"
_NEVER_RAISED = "det never raises it; remove the import and its handler"
_NO_MASTER = "there is no master; experiments, trials, checkpoints and models are in determined.experimental.client"
_NO_WORKSPACES = "there are no workspaces, projects or OAuth clients; leave it out"
_STORAGE_BLOCK = "pass the config block to core.init(checkpoint_storage=…)"
_SORT = "the lists of the SDK are ordered by id; sort them with sorted()"
_STREAM = "call TrialReference.iter_metrics(), or Determined.iter_trials_metrics() for several trials"


def _each(package: str, names: str, advice: str) -> dict[str, str]:
    return {f"{package}.{name}": advice for name in names.split()}


PLANNED_NAMES: Final = {
    "determined.experimental.core_v2": "call core.init() in a script, which works with and without det run",
    "determined.keras.DeterminedCallback": f"write a TFKerasTrial, or {_CORE_API}",
    "determined.keras.TensorBoard": "use the TFKerasTensorBoard of this module",
    "determined.pytorch.deepspeed": "write a PyTorchTrial and set distributed: {backend: deepspeed}",
    "determined.pytorch.lightning": f"write a PyTorchTrial around the module's steps, or {_CORE_API}",
    "determined.searcher": "set searcher: {name: custom} to use your own search method, see docs/searching.md",
}
"""Old module, or name in one, that det does not have yet -> advice on what to use until then."""

UNSUPPORTED_NAMES: Final = {
    **_each("determined", "CallbackTrialController LoopTrialController TrialController", _CONTROLLER),
    **_each("determined", "EnvContext ResourcesInfo _env_context", _BY_FACTORY),
    "determined._core": "import names of release 0.18 or later from determined.core",
    **_each("determined", "_data_layer callback exec gpu ipc load monkey_patch profile", _INTERNAL),
    **_each("determined", "layers workload", _CONTROLLER),
    "determined.ExperimentConfig": "a config is a dict; context.get_experiment_config() returns that of a trial",
    "determined.NativeContext": _NATIVE,
    "determined.RankInfo": "pass rank, size, local_rank, … to DistributedContext, or use from_horovod",
    "determined._DistributedBackend": "ask the context, which has distributed.rank and distributed.size",
    "determined._train_context.RankInfo": "pass rank, size, local_rank, … to DistributedContext, or use from_horovod",
    "determined.cli": "use the command det",
    "determined.common.api": _NO_MASTER,
    **_each("determined.common", "constants context declarative_argparse detignore detlomond requests", _INTERNAL),
    **_each("determined.common", "schemas streams types v1file_utils", _INTERNAL),
    **_each("determined.common.experimental", "Session session", _NO_MASTER),
    **_each("determined.common.experimental", "Project oauth2_scim_client project workspace", _NO_WORKSPACES),
    "determined.common.experimental.user": _ACCOUNTS,
    **_each("determined.common.experimental", "TrialOrderBy TrialSortBy", _SORT),
    "determined.common.experimental.get_checkpoint": "call Determined().get_checkpoint(uuid)",
    "determined.common.storage.*": _STORAGE_BLOCK,
    "determined.common.storage.SharedFSStorageManager": "pass the directory to core.init(checkpoint_storage=…)",
    "determined.common.util.*": "it was a helper of the old command line; use a function of your own",
    "determined.core.DistributedContext.from_tf_config": _MULTI_WORKER,
    "determined.core._heartbeat": _BY_FACTORY,
    "determined.core._log_shipper": _BY_FACTORY,
    "determined.deploy": "no deployment is needed; det run CONFIG trains on this machine",
    **_each("determined.errors", "EnterpriseOnlyError InternalException SkipWorkloadException", _NEVER_RAISED),
    **_each("determined.errors", "StopLoadingImplementation WorkerError WorkerFinishedGracefully", _NEVER_RAISED),
    **_each("determined.estimator", "EstimatorNativeContext init", _NATIVE),
    "determined.estimator.EstimatorTrialController": _CONTROLLER,
    "determined.estimator._reducer._EstimatorReducerContext": "use EstimatorTrialContext, which has its methods",
    **_each("determined.experimental", "TrialOrderBy TrialSortBy", _SORT),
    **_each("determined.experimental", "estimator init_native", _NATIVE),
    **_each(
        "determined.experimental.client",
        "CheckpointOrderBy CheckpointSortBy ExperimentOrderBy ExperimentSortBy TrialOrderBy TrialSortBy",
        _SORT,
    ),
    **_each(
        "determined.experimental.client",
        "stream_trials_metrics stream_trials_training_metrics stream_trials_validation_metrics",
        _STREAM,
    ),
    **_each(
        "determined.experimental.client",
        "Oauth2ScimClient Project Workspace add_oauth_client create_workspace delete_workspace get_workspace "
        "list_oauth_clients list_workspaces remove_oauth_client",
        _NO_WORKSPACES,
    ),
    **_each(
        "determined.experimental.client",
        "User create_user get_session_username get_user_by_id get_user_by_name list_users logout whoami",
        _ACCOUNTS,
    ),
    "determined.experimental.client.CheckpointState": "compare with the name of the state, such as 'COMPLETED'",
    "determined.experimental.client.ResourcePool": "there are no resource pools; det slots lists this host's slots",
    "determined.experimental.client.Session": _NO_MASTER,
    "determined.experimental.client.get_model_by_id": "pass the id to get_model()",
    "determined.experimental.client.get_model_labels": "read the attribute labels of each model",
    "determined.experimental.unmanaged": "call core.init() in a script, which works with and without det run",
    "determined.horovod": "import horovod.torch or horovod.tensorflow as hvd; det initializes it",
    "determined.keras.TFKerasTrialController": _CONTROLLER,
    **_each("determined.keras", "get_rng_state set_rng_state", "checkpoints contain the state; remove the calls"),
    "determined.launch.tensorflow": _MULTI_WORKER,
    "determined.lightning": _CORE_API,
    "determined.profiler": "set profiling: {enabled: true}, or call core_context.profiler.on()",
    "determined.pytorch.CheckpointLoadContext": "PyTorchTrialContext.from_config(config) makes one without training",
    "determined.pytorch.PyTorchTrialController": _CONTROLLER,
    "determined.pytorch.data_length": "use the length of any tensor in the batch",
    "determined.pytorch.dsat": "list the settings of DeepSpeed to try as hyperparameters of a search",
    "determined.tensorboard.*": "core_context.train.get_tensorboard_path() is the directory for files of your own",
    "determined.tensorboard.MetricWriter": _AUTOMATIC_TENSORBOARD,
    "determined.tensorboard.base": _BY_FACTORY,
    "determined.tensorboard.metric_writers.*": _AUTOMATIC_TENSORBOARD,
    "determined.tensorpack": f"tensorpack is no longer maintained; {_CORE_API}",
    "determined.util.*": "it was a helper of the old platform; use a function of your own",
}
"""Old module, or name in one, that det will not have -> advice on what to use instead.

A name that ends in ``.*`` stands for all others of a module.
"""


def explain_missing(path: str) -> str | None:
    """Return the message about a name that is planned or not supported, or None if nothing is known about it."""
    places = _find_places(path)
    for place in places:
        if place in PLANNED_NAMES:
            return f"{path} is planned, but det does not have it yet; until then, {PLANNED_NAMES[place]}"
    for place in (*places, *(f"{place.rpartition('.')[0]}.*" for place in places)):
        if place in UNSUPPORTED_NAMES:
            return f"{path} is not supported: {UNSUPPORTED_NAMES[place]}"
    return None


def _find_places(path: str) -> list[str]:
    """Return the paths of the same name in the tables, which list a name of several modules once."""
    module, _, name = path.rpartition(".")
    names = OLD_MODULES[module].names if module in OLD_MODULES else {}
    same = [f"{other}.{name}" for other, old in _PUBLIC.items() if names and old.names is names]
    head, separator, tail = path.partition(".")
    return [f"{_COMMON}{separator}{tail}" if head == _OLD_COMMON else path, *same]
