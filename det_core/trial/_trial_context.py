"""Context through which a trial reads its config, hyperparameters and ids."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping
from copy import deepcopy
from functools import cached_property
from typing import TYPE_CHECKING, Any

from det_core.core import Context, DistributedContext, single_process
from det_core.core._experiment_settings import ExperimentSettings, settings_of
from det_core.errors import InvalidExperimentException

if TYPE_CHECKING:
    from typing_extensions import Self

    from det_core.config import ExperimentConfig
    from det_core.trial._old_environment import OldEnvironment

_NOT_IN_FROM_CONFIG = ("bind_mounts", "checkpoint_storage", "environment", "resources", "optimizations")
"""Config keys that `TrialContext.from_config` ignores."""
_READ_AGAIN = ("name", "description", "labels", "data", "records_per_epoch", "scheduling_unit")
"""Keys of a recorded config that a trial may read again. The others concern the machines that it trained on."""
DEFAULT_SEARCHER: Mapping[str, Any] = {
    "name": "single",
    "metric": "validation_loss",
    "max_length": {"batches": 100},
}
"""Searcher of configs that do not specify one, which determines how long their trials train."""


class TrialContext:
    """Context that a trial's ``__init__`` receives. Created by `from_config` or by the framework.

    Args:
        config: config of the experiment, or its settings.
        hparams: hyperparameters of the trial.
        trial_id: id of the trial in the tracking store, or 0.
        experiment_id: id of the experiment in the tracking store, or 0.
        trial_seed: seed of everything random in the trial.
        distributed: workers of the trial.

    Attributes:
        distributed: workers of the trial.
        training_length: number of batches of the whole training, or None before the training loop exists.
    """

    training_length: int | None = None

    def __init__(
        self,
        *,
        config: ExperimentConfig | ExperimentSettings,
        hparams: Mapping[str, Any],
        trial_id: int,
        experiment_id: int,
        trial_seed: int,
        distributed: DistributedContext,
    ) -> None:
        self.distributed = distributed
        self._settings = config if isinstance(config, ExperimentSettings) else settings_of(config)
        self._hparams = dict(hparams)
        self._trial_id = trial_id
        self._experiment_id = experiment_id
        self._trial_seed = trial_seed
        self._stop_requested = False

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Create a context for debugging, without a runner or a tracking store.

        Hyperparameters are sampled from the config. The trial and experiment ids are 0.

        Args:
            config: experiment config. It may omit the searcher, and its keys about resources and storage are ignored.

        Raises:
            ConfigError: the config is invalid.
        """
        from det_core.config import parse_config, sample_hyperparameters  # workers do not need them

        kept = {key: value for key, value in config.items() if key not in _NOT_IN_FROM_CONFIG}
        parsed = parse_config({"searcher": DEFAULT_SEARCHER, **kept})
        seed = parsed.reproducibility.experiment_seed
        return cls(
            config=parsed,
            hparams=sample_hyperparameters(parsed.hyperparameters, random.Random(seed)),  # noqa: S311
            trial_id=0,
            experiment_id=0,
            trial_seed=seed,
            distributed=single_process(),
        )

    @classmethod
    def from_record(cls, config: Mapping[str, Any] | None, hparams: Mapping[str, Any] | None, **keys: Any) -> Self:
        """Create the context of a recorded trial for use outside of its training. For use by frameworks.

        Args:
            config: recorded config of the experiment.
            hparams: recorded hyperparameters of the trial.
            keys: further keys of the config.
        """
        return cls.from_config(
            {
                **{key: config[key] for key in _READ_AGAIN if config and config.get(key) is not None},
                "hyperparameters": {name: {"type": "const", "val": value} for name, value in (hparams or {}).items()},
                **keys,
            }
        )

    @classmethod
    def from_core(cls, core: Context, *, hparams: Mapping[str, Any] | None = None) -> Self:
        """Create the context of the trial that this process trains. For use by frameworks.

        Args:
            core: core context of the process.
            hparams: hyperparameters in place of those that ``core`` has.
        """
        return cls(
            config=core._settings,
            hparams=core.trial.hparams if hparams is None else hparams,
            trial_id=core.trial.trial_id,
            experiment_id=core.trial.experiment_id,
            trial_seed=core.trial.trial_seed,
            distributed=core.distributed,
        )

    @property
    def config(self) -> ExperimentConfig:
        """Config of the experiment."""
        return self._settings.parsed()

    @cached_property
    def env(self) -> OldEnvironment:
        """Facts about the trial for code of earlier releases. New code uses the methods of the context."""
        from det_core.trial._old_environment import OldConfig, OldEnvironment  # only code of earlier releases asks

        return OldEnvironment(
            experiment_config=OldConfig(self.get_experiment_config()),
            hparams=self.get_hparams(),
            trial_seed=self._trial_seed,
            det_experiment_id=str(self._experiment_id),
            det_trial_id=str(self._trial_id),
            managed_training=bool(self._trial_id),
            container_gpus=[],
            slot_ids=[],
        )

    def get_experiment_config(self) -> dict[str, Any]:
        """Return the complete experiment config, defaults included."""
        return deepcopy(dict(self._settings.dumped))

    def get_data_config(self) -> dict[str, Any]:
        """Return ``data`` from the config, whose contents users define."""
        return dict(self._settings.data)

    def get_experiment_id(self) -> int:
        """Return the experiment's id in the tracking store."""
        return self._experiment_id

    def get_trial_id(self) -> int:
        """Return the trial's id in the tracking store."""
        return self._trial_id

    def get_trial_seed(self) -> int:
        """Return the seed of everything random in this trial, 0 <= seed < 2**32."""
        return self._trial_seed

    def get_hparams(self) -> dict[str, Any]:
        """Return hyperparameter names mapped to values, nested as in the config."""
        return dict(self._hparams)

    def get_hparam(self, name: str) -> Any:
        """Return the value of one hyperparameter.

        Raises:
            ValueError: no hyperparameter has this name. The message lists the existing ones.
        """
        if name not in self._hparams:
            known = ", ".join(map(repr, sorted(self._hparams))) or "none"
            raise ValueError(
                f"there is no hyperparameter {name!r}; the config's hyperparameters are: {known}. "
                f"Add it under 'hyperparameters'."
            )
        if name == "global_batch_size":
            warnings.warn("use get_per_slot_batch_size() for data loaders, or get_global_batch_size()", stacklevel=2)
        return self._hparams[name]

    def get_global_batch_size(self) -> int:
        """Return the number of records per batch over all slots.

        It is the hyperparameter ``global_batch_size``, rounded down to a multiple of the number of slots.

        Raises:
            InvalidExperimentException: the hyperparameter is missing, not an integer, or less than the number of slots.
        """
        return self.get_per_slot_batch_size() * self.distributed.size

    def get_per_slot_batch_size(self) -> int:
        """Return the number of records per batch on each slot.

        Raises:
            InvalidExperimentException: as in `get_global_batch_size`.
        """
        size, slots = self._hparams.get("global_batch_size"), self.distributed.size
        if not isinstance(size, int) or isinstance(size, bool) or size < slots:
            raise InvalidExperimentException(
                f"the hyperparameter global_batch_size is {size!r}; expected an integer of at least {slots}, "
                "for example 'hyperparameters: {global_batch_size: 64}'"
            )
        if size % slots:
            warnings.warn(
                f"global_batch_size {size} is not a multiple of {slots} slots; using {size // slots * slots}",
                stacklevel=3,
            )
        return size // slots

    def batches_per_epoch(self) -> int | None:
        """Return the number of batches in ``records_per_epoch``, or None if the config does not set it."""
        records = self._settings.dumped["records_per_epoch"]
        return max(records // self.get_global_batch_size(), 1) if records else None

    def get_stop_requested(self) -> bool:
        """Return whether `set_stop_requested` asked the trial to stop."""
        return self._stop_requested

    def set_stop_requested(self, stop_requested: bool) -> None:
        """Ask the trial to stop for good. It finishes the step and saves a checkpoint first.

        Raises:
            AssertionError: the argument is not a bool.
        """
        if not isinstance(stop_requested, bool):
            raise AssertionError(f"stop_requested must be True or False, not {stop_requested!r}")
        self._stop_requested = stop_requested
