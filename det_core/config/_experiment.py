"""Model of the experiment config, with all keys and their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import (
    BaseModel,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError
from typing_extensions import Self

from det_core.config._block import Block, Count, Flag, Ignored, Positive
from det_core.config._claimed_keys import find_claimed_model, iter_ignored_keys
from det_core.config._core_blocks import (
    BindMount,
    EnvironmentConfig,
    OptimizationsConfig,
    ProfilingConfig,
    ReproducibilityConfig,
    ResourcesConfig,
    RetentionPolicy,
)
from det_core.config._entrypoint import Entrypoint, is_command
from det_core.config._hyperparameters import Hyperparameter, HyperparameterName, example_values, numeric_texts
from det_core.config._length import Length, Unit
from det_core.config._plugin_blocks import (
    CheckpointStorageConfig,
    DistributedConfig,
    LauncherConfig,
    NamedOptions,
    ObserverConfig,
    SearcherConfig,
)
from det_core.config._secrets import mark_secrets
from det_core.errors import PluginError
from det_core.interfaces.records import native_command
from det_core.interfaces.secrets import iter_references
from det_core.metric_directions import missing_direction


class ExperimentConfig(Block):
    """Complete, valid experiment config. `load_config` and `parse_config` create it."""

    name: str | None = Field(default=None, examples=["digits"])
    """Name of the experiment in listings. It need not be unique, and is empty by default."""
    description: str | None = Field(default=None, examples=["Baseline with dropout"])
    """Description of the experiment in listings, empty by default."""
    labels: tuple[str, ...] = Field(default=(), examples=[["baseline", "digits"]])
    """Labels by which listings can select experiments."""
    project: str = Field(default="", examples=["vision"])
    """Project by which lists of experiments can be filtered."""
    workspace: str = Field(default="", examples=["research"])
    """Workspace that contains the project."""
    entrypoint: Entrypoint | None = Field(
        default=None, examples=["model_def:DigitsTrial", "python3 train.py --lr 0.1", ["python3", "train.py"]]
    )
    """Trial class as ``module:Class``, or a command line as text or as a list of arguments."""
    hyperparameters: dict[HyperparameterName, Hyperparameter] = Field(
        default_factory=dict,
        examples=[{"global_batch_size": 64, "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}}],
    )
    """Hyperparameters by name, as a value, as a range to search (``type: ...``), or nested."""
    searcher: SearcherConfig
    """Search method, its metric and the length of training."""
    scheduling_unit: Positive = Field(default=100, examples=[50], json_schema_extra={"unit": "batches"})
    """Maximum number of batches between two reports of training metrics."""
    records_per_epoch: Count = Field(default=0, examples=[60000], json_schema_extra={"unit": "records"})
    """Number of records in one epoch of training data that has no length, or 0 if the data has one."""
    min_validation_period: Length = Field(default=Length(0, Unit.BATCHES), examples=[{"epochs": 1}, {"batches": 500}])
    """Length of training between two validations, or 0 to validate only at the end."""
    min_checkpoint_period: Length = Field(default=Length(0, Unit.BATCHES), examples=[{"batches": 1000}, {"epochs": 1}])
    """Length of training between two checkpoints, or 0 to save them by ``checkpoint_interval`` and at the end."""
    checkpoint_interval: Count = Field(default=900, examples=[0], json_schema_extra={"unit": "seconds"})
    """Seconds of training after which a trial class saves a checkpoint if ``min_checkpoint_period`` is 0, or 0 for
    never. A checkpoint takes at most a twentieth of the time, so slow ones are rarer. ``checkpoint_policy: none`` turns
    them off, too."""
    perform_initial_validation: Flag = False
    """Whether to validate before the first batch."""
    rehearsal: Flag = True
    """Whether a new trial first evaluates a batch and stores a checkpoint, to find wrong names and unusable storage."""
    checkpoint_policy: Literal["best", "all", "none"] = "best"
    """Validations after which a checkpoint is saved, where ``best`` means those with the best metric so far."""
    checkpoint_code: Flag = False
    """Whether every checkpoint of a trial class contains a copy of the trial's code, under ``code/``."""
    checkpoint_storage: CheckpointStorageConfig | None = None
    """Storage of checkpoints. By default a directory ``checkpoints`` next to the embedded database."""
    stop_on_nan: Flag = False
    """Whether a trial ends with an error once its loss is NaN or infinite for a whole report, or its metric is."""
    max_restarts: Count = Field(default=5, examples=[0], json_schema_extra={"unit": "restarts"})
    """Number of failed runs after which a trial is still restarted."""
    restart_repeated_failures: Flag = False
    """Whether a trial that has failed twice in the same way is still restarted, up to ``max_restarts`` times."""
    preemption_timeout: Count | None = Field(default=None, examples=[1800], json_schema_extra={"unit": "seconds"})
    """Seconds from a request to stop until a trial is killed, by default 600."""
    reproducibility: ReproducibilityConfig = Field(default_factory=ReproducibilityConfig)
    """Random seed."""
    resources: ResourcesConfig = ResourcesConfig()
    """Slots of the trials."""
    environment: EnvironmentConfig = EnvironmentConfig()
    """Environment variables of the workers."""
    optimizations: OptimizationsConfig = OptimizationsConfig()
    """Gradient aggregation, communication and mixed precision."""
    launcher: LauncherConfig = Field(default_factory=lambda: LauncherConfig.model_validate({}))
    """Launcher of the trials' processes. By default they run on this machine."""
    distributed: DistributedConfig | None = None
    """Backend of trials with several slots. By default the only suitable one that is installed."""
    observers: dict[str, ObserverConfig] = Field(
        default_factory=dict, examples=[{"mlflow": {"tracking_uri": "http://127.0.0.1:5000"}}]
    )
    """Names of observers, which pass events on to other systems such as MLflow, mapped to their options."""
    profiling: ProfilingConfig = ProfilingConfig()
    """Recording of the load of the hosts."""
    data: dict[str, Any] = Field(default_factory=dict, examples=[{"path": "/data/digits", "folds": 5}])
    """Free values for the trial's code."""
    debug: Flag = False
    """Whether trial classes log at the level DEBUG instead of INFO."""
    internal: dict[str, Any] | None = Field(
        default=None, examples=[{"native": {"command": ["train.py", "--epochs", "5"]}}]
    )
    """Data of other systems. Only ``native.command`` is used, the command of the script that called ``create``."""
    bind_mounts: Ignored[tuple[BindMount, ...]] = ()
    """Directories of the host that are mounted in containers. Workers see the whole file system."""
    data_layer: Ignored[dict[str, Any] | None] = None
    """Storage of cached data sets, which release 0.12 had."""
    integrations: Ignored[dict[str, Any] | None] = None
    """Connections to other products, such as Pachyderm."""
    log_policies: Ignored[tuple[dict[str, Any], ...] | None] = None
    """Reactions of the cluster's master to patterns in logs."""
    log_pattern_policies: Ignored[tuple[dict[str, Any], ...] | None] = None
    """Name of ``log_policies`` in older releases."""
    pbs: Ignored[dict[str, Any] | None] = None
    """Options for the PBS batch system."""
    retention_policy: Ignored[RetentionPolicy | None] = None
    """Time to keep logs. The tracking store keeps them until the experiment is deleted."""
    security: Ignored[dict[str, Any] | None] = None
    """Settings of Kerberos."""
    slurm: Ignored[dict[str, Any] | None] = None
    """Options for the Slurm batch system."""
    tensorboard_storage: Ignored[dict[str, Any] | None] = None
    """Storage of TensorBoard files. They are stored beside the checkpoints."""

    _rewrites: tuple[str, ...] = PrivateAttr(default=())

    @property
    def notices(self) -> tuple[str, ...]:
        """Return messages to show to the user once, on rewritten, ignored, doubtful and missing keys."""
        _, claimed = find_claimed_model(self.launcher.type, type(self))
        ignored = ", ".join(".".join(path) for path in iter_ignored_keys(self) if path not in claimed)
        has_direction = "smaller_is_better" in self.searcher.model_fields_set
        others = (
            f"these keys have no effect and are ignored: {ignored}" if ignored else "",
            *(
                f"hyperparameters.{name} is the text {text!r}; remove the quotes if the code expects a number"
                for name, text in numeric_texts(self.hyperparameters)
            ),
            "" if has_direction else missing_direction(self.searcher.metric),
        )
        return (*self._rewrites, *filter(None, others))

    @property
    def script(self) -> tuple[str, ...]:
        """Return the path and the arguments of the script that called `create`, from ``internal.native.command``.

        The tuple is empty if no script called `create`.
        """
        return native_command(self.internal)

    def dump(self) -> dict[str, Any]:
        """Return the config as JSON-compatible values in the form in which users write it, defaults included.

        Secrets are included as text that ``repr`` masks. JSON and YAML dumps show the real values.
        """
        whole: dict[str, Any] = mark_secrets(
            self.model_dump(mode="json", by_alias=True), self.model_dump(by_alias=True)
        )
        return whole

    def dump_claimed(self) -> dict[str, Any]:
        """Return the part of the dump that the launcher claims (`LauncherSpec.claims`), without keys that are not set.

        Raises:
            PluginError: the model of these keys cannot be used.
        """
        _, claimed = find_claimed_model(self.launcher.type, type(self))
        chosen = [path for path in iter_ignored_keys(self) if path in claimed]
        values: dict[str, Any] = {}
        dump = self.dump() if chosen else {}
        for *blocks, key in chosen:
            source, target = dump, values
            for name in blocks:
                source, target = source[name], target.setdefault(name, {})
            target[key] = source[key]
        return values

    def __eq__(self, other: object) -> bool:
        # Pydantic would also compare private attributes, but notices about rewritten legacy keys must not matter.
        return isinstance(other, ExperimentConfig) and self.__dict__ == other.__dict__

    @model_validator(mode="after")
    def _launcher_accepts_its_keys(self) -> Self:
        try:
            model, _ = find_claimed_model(self.launcher.type, type(self))
        except PluginError as error:
            raise PydanticCustomError("plugin", "{reason}", {"reason": str(error)}) from error
        values = self.dump_claimed()
        if model and not any(iter_references(values)):  # recorded, so valid
            model.model_validate(values)
        return self

    @field_validator("observers", mode="before")
    @classmethod
    def _add_names(cls, blocks: Any) -> Any:
        if not isinstance(blocks, Mapping):
            return blocks
        given = ((name, {} if options is None else options) for name, options in blocks.items())
        return {
            name: NamedOptions(name, options) if isinstance(options, Mapping) else options for name, options in given
        }

    @field_validator("searcher")
    @classmethod
    def _says_how_long(cls, block: SearcherConfig, info: ValidationInfo) -> SearcherConfig:
        expected = "max_length" in type(block.options).model_fields and "entrypoint" in info.data
        if expected and block.max_length is None and not is_command(info.data["entrypoint"]):
            missing = InitErrorDetails(type="missing", loc=("max_length",), input={})
            raise ValidationError.from_exception_data(cls.__name__, [missing])
        return block

    @field_validator("searcher")
    @classmethod
    def _searches_these_hyperparameters(cls, block: SearcherConfig, info: ValidationInfo) -> SearcherConfig:
        check = getattr(block.options, "check_hyperparameters", None)
        if check and "hyperparameters" in info.data:
            check(info.data["hyperparameters"])
        return block

    @field_validator("resources")
    @classmethod
    def _can_change_its_size(cls, block: ResourcesConfig, info: ValidationInfo) -> ResourcesConfig:
        if block.min_slots_per_trial and {"entrypoint", "hyperparameters"} <= info.data.keys():
            batch_size = info.data["hyperparameters"].get("global_batch_size")
            is_program = is_command(info.data["entrypoint"])
            if message := _why_not_elastic(block, batch_size, is_program=is_program):
                raise ValidationError.from_exception_data(cls.__name__, [_problem("min_slots_per_trial", message)])
        return block

    @field_validator("distributed")
    @classmethod
    def _agrees_with_the_rest(cls, block: DistributedConfig | None, info: ValidationInfo) -> DistributedConfig | None:
        if block is None:
            return None
        messages = {}
        if block.backend and is_command(info.data.get("entrypoint")):
            messages["backend"] = (
                "expected no backend beside an entrypoint that is a command, because a command starts its own workers; "
                "remove the key, or name a trial class `module:Class` as the entrypoint"
            )
        if "optimizations" in info.data:
            for key in sorted(type(block.options).model_fields.keys() & OptimizationsConfig.model_fields):
                if _is_set(block.options, key) and _is_set(info.data["optimizations"], key):
                    messages[key] = f"it is also set as optimizations.{key}; remove one of them"
        if messages:
            raise ValidationError.from_exception_data(cls.__name__, [_problem(*item) for item in messages.items()])
        return block


def _problem(key: str, message: str) -> InitErrorDetails:
    return InitErrorDetails(
        type=PydanticCustomError("conflict", "{message}", {"message": message}), loc=(key,), input={}
    )


def _why_not_elastic(block: ResourcesConfig, batch_size: Any, *, is_program: bool) -> str:
    """Return why the number of slots of a trial cannot change as the config says, or an empty string.

    Args:
        block: the block, with a minimum number of slots.
        batch_size: the hyperparameter ``global_batch_size``, or None.
        is_program: whether the entrypoint is a command.
    """
    most, least = block.slots_per_trial, block.min_slots_per_trial
    if is_program:
        return "expected a trial class as the entrypoint, because a command divides its data itself; remove the key"
    if least is not None and least > most:
        return f"got {least}; expected at most slots_per_trial, which is {most}"
    sizes = [] if hasattr(batch_size, "minval") else example_values(batch_size)
    if not sizes or not all(type(size) is int and size > 0 for size in sizes):
        return (
            "expected the hyperparameter global_batch_size, a positive integer or a list of them (type: categorical), "
            "which all numbers of slots must divide"
        )
    for size in sizes:
        if size % most:
            return (
                f"expected a global_batch_size that is a multiple of slots_per_trial, which is {most}; got {size}, of "
                "which the slots cannot have equal shares"
            )
        if len(block.slot_counts(size)) == 1:
            return (
                f"got {least}, but no number of slots >= {least} and < {most} divides global_batch_size {size}, so the "
                "number could never change; lower min_slots_per_trial, or remove it"
            )
    return ""


def _is_set(block: BaseModel, name: str) -> bool:
    """Return whether a field differs from its default.

    The result is the same for a config file and for its dump, which contains every key.
    """
    return bool(getattr(block, name) != type(block).model_fields[name].get_default(call_default_factory=True))
