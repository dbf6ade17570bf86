"""Config blocks that select a plugin, with common keys and with the plugin's own options."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from det_core.config._block import Block, Count, Flag, Number, Whole, prepare_block_input
from det_core.config._length import Length, Unit
from det_core.config._secrets import mark_secrets
from det_core.errors import PluginError
from det_core.interfaces.records import LONGEST_NAME
from det_core.interfaces.secrets import iter_references
from det_core.plugins import plugin_registry


class NoOptions(Block):
    """Options of a plugin that takes no options."""


class UnresolvedOptions(BaseModel):
    """Recorded options in which references replace the secrets.

    They were valid when they were recorded, and are not validated again. The plugin does not receive them.
    """

    model_config = ConfigDict(frozen=True, extra="allow")


OPTIONS_KEY = "<options>"
"""Key of the plugin's options in the input of the models, which differs from an option that is called ``options``."""


class PluginBlock(Block):
    """Block that selects a plugin by name. Users write the plugin's options beside the name.

    The plugin is looked up whenever a block is validated, never when this module is imported.
    """

    kind: ClassVar[str]
    """Kind of the plugins, as in the plugin registry."""
    tag: ClassVar[str]
    """Key whose value is the plugin's name."""

    @model_validator(mode="before")
    @classmethod
    def _prepare(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        common = cls.common_keys()
        options = {key: value for key, value in data.items() if key not in common}
        return {key: data[key] for key in common & data.keys() if data[key] is not None} | {OPTIONS_KEY: options}

    @classmethod
    def common_keys(cls) -> Set[str]:
        """Return the keys that users write beside the plugin's options."""
        return cls.model_fields.keys() - {"options"}

    @classmethod
    def options_model(cls, name: str | None) -> type[BaseModel]:
        """Return the model of a plugin's options.

        Args:
            name: name of the plugin, or None for no plugin.

        Raises:
            PluginError: there is no such plugin, or it cannot be imported.
        """
        plugins = plugin_registry()
        return NoOptions if name is None else plugins.config_model(plugins.find(cls.kind, name)) or NoOptions

    def load_target(self) -> None:
        """Import the implementation of the selected plugin.

        Raises:
            PluginError: it cannot be used.
        """
        plugins, name = plugin_registry(), getattr(self, self.tag)
        if name is not None:
            plugins.load(plugins.find(self.kind, name))

    @field_validator("type", "name", "backend", "observer", check_fields=False)
    @classmethod
    def _find(cls, name: str | None) -> str | None:
        try:
            cls.options_model(name)
        except PluginError as error:
            raise PydanticCustomError("plugin", "{reason}", {"reason": str(error)}) from error
        return name

    @field_validator("options", mode="before", check_fields=False)
    @classmethod
    def _validate_options(cls, options: dict[str, Any], info: ValidationInfo) -> BaseModel:
        if cls.tag not in info.data:
            return NoOptions()
        if any(iter_references(options)):
            return UnresolvedOptions.model_validate(options)
        model = cls.options_model(info.data[cls.tag])
        # A model that does not configure extra keys refuses them too, because most unknown keys are typing errors.
        extra: Literal["forbid"] | None = None if "extra" in model.model_config else "forbid"
        return model.model_validate(prepare_block_input(model, options, beside=cls.common_keys()), extra=extra)

    @model_serializer(mode="wrap")
    def _flatten(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        block: dict[str, Any] = dump(self)
        options: dict[str, Any] = block.pop("options")
        return {key: block[key] for key in block if key in self.common_keys()} | options


class CheckpointStorageConfig(PluginBlock):
    """Storage of checkpoints, and the numbers of checkpoints to keep when the experiment completes."""

    kind = "storage"
    tag = "type"

    type: str
    """Name of the store, such as ``directory``, ``shared_fs`` or ``s3``."""
    save_experiment_best: Count = Field(default=0, examples=[3], json_schema_extra={"unit": "checkpoints"})
    """Number of best checkpoints of all trials to keep when the experiment completes."""
    save_trial_best: Count = Field(default=1, examples=[2], json_schema_extra={"unit": "checkpoints"})
    """Number of best checkpoints of each trial to keep when the experiment completes."""
    save_trial_latest: Count = Field(default=1, examples=[0], json_schema_extra={"unit": "checkpoints"})
    """Number of latest checkpoints of each trial to keep when the experiment completes."""
    options: SerializeAsAny[BaseModel] = Field(validation_alias=OPTIONS_KEY)
    """Options of the store."""

    def dump(self) -> dict[str, Any]:
        """Return the block as JSON-compatible values, as `ExperimentConfig.dump` does."""
        plain, typed = self.model_dump(mode="json", by_alias=True), self.model_dump(by_alias=True)
        marked: dict[str, Any] = mark_secrets(plain, typed, ("checkpoint_storage",))
        return marked


class SearcherConfig(PluginBlock):
    """Search method, which creates trials and decides on the length of their training."""

    kind = "search_method"
    tag = "name"

    name: str
    """Name of the search method, such as ``single``, ``random``, ``grid`` or ``adaptive_asha``."""
    metric: str = Field(max_length=LONGEST_NAME, examples=["validation_loss"])
    """Validation metric that the search optimizes, and by which checkpoints are best."""
    smaller_is_better: Flag = True
    """Whether the search minimizes the metric. Otherwise it maximizes it."""
    source_trial_id: Whole | None = Field(default=None, examples=[17], json_schema_extra={"unit": "none"})
    """Trial whose latest checkpoint at the submission all trials start from."""
    source_checkpoint_uuid: str | None = Field(default=None, examples=["3f1c9a52-7d0e-4d5f-9b7e-5f2f6a0f4c11"])
    """Checkpoint that all trials start from. Not both this and ``source_trial_id``."""
    options: SerializeAsAny[BaseModel] = Field(validation_alias=OPTIONS_KEY)
    """Options of the search method."""

    @property
    def max_length(self) -> Length | None:
        """Return the option ``max_length`` of the search method.

        None if the method has no such option, or if a command omits it.
        """
        return getattr(self.options, "max_length", None)

    @property
    def unit(self) -> Unit | None:
        """Return the unit of all lengths that the search method requests. None if the trial's code decides on it."""
        return self.max_length.unit if self.max_length else getattr(self.options, "unit", None)


class LauncherConfig(PluginBlock):
    """Launcher, which starts the processes of trials."""

    kind = "launcher"
    tag = "type"

    type: str = Field(default="local", validate_default=True)
    """Name of the launcher, such as ``local``, which starts all workers on this machine, or that of a plugin."""
    max_interruptions: Count | None = Field(default=None, examples=[20], json_schema_extra={"unit": "interruptions"})
    """Maximum number of times that a trial starts again because the engine ended its run, by preemption, a time limit
    or the loss of a node. By default there is no limit, except that a trial fails after more than 20 such runs in a row
    without a new batch or checkpoint. They do not count against ``max_restarts``."""
    options: SerializeAsAny[BaseModel] = Field(validation_alias=OPTIONS_KEY)
    """Options of the launcher."""


class DistributedConfig(PluginBlock):
    """Communication between the workers of a trial."""

    kind = "backend"
    tag = "backend"

    backend: str | None = None
    """Name of the backend, such as ``torch_distributed`` or ``horovod``. By default the only suitable one."""
    timeout: Annotated[Number, Field(gt=0)] | None = Field(
        default=None, examples=[600], json_schema_extra={"unit": "seconds"}
    )
    """Seconds to wait for a live worker, > 0. By default there is no limit."""
    options: SerializeAsAny[BaseModel] = Field(validation_alias=OPTIONS_KEY)
    """Options of the backend."""


class NamedOptions(NamedTuple):
    """Input of `ObserverConfig`."""

    observer: str
    options: Mapping[str, Any]


class ObserverConfig(PluginBlock):
    """Options of one observer. Its name is the key of the block, not a value in it."""

    kind = "observer"
    tag = "observer"

    observer: str
    """Name of the observer, such as ``mlflow``."""
    options: SerializeAsAny[BaseModel]
    """Options of the observer."""

    @classmethod
    def from_options(cls, observer: str, options: Mapping[str, Any]) -> ObserverConfig:
        """Validate the options of an observer.

        Args:
            observer: name of the observer.
            options: its options.

        Raises:
            ValidationError: there is no such observer, or it does not accept the options.
        """
        return cls.model_validate(NamedOptions(observer, options))

    @classmethod
    def common_keys(cls) -> Set[str]:
        """Return the keys that users write beside the plugin's options. There are none."""
        return frozenset()

    @model_validator(mode="before")
    @classmethod
    def _prepare(cls, data: Any) -> Any:
        return data._asdict() if isinstance(data, NamedOptions) else data


PLUGIN_BLOCKS: tuple[type[PluginBlock], ...] = (
    CheckpointStorageConfig,
    SearcherConfig,
    LauncherConfig,
    DistributedConfig,
)
