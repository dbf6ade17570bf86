"""What a trial may ask about its place in the experiment."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from det_core.config import ExperimentConfig, parse_config, sample_hyperparameters
from det_core.core import Context, DistributedContext
from det_core.core._distributed import single_process
from det_core.errors import InvalidExperimentException

if TYPE_CHECKING:
    from typing_extensions import Self

_NOT_IN_FROM_CONFIG = ("bind_mounts", "checkpoint_storage", "environment", "resources", "optimizations")
_READ_AGAIN = ("name", "description", "labels", "data", "records_per_epoch", "scheduling_unit")
"""Keys of a recorded config that a trial may read again; the others are about the machines it trained on."""
DEFAULT_SEARCHER: Mapping[str, Any] = {
    "name": "single",
    "metric": "validation_loss",
    "max_length": {"batches": 100},
}
"""How long trials train whose config does not say."""


class TrialContext:
    """Handed to a trial's ``__init__``. Made by `from_config` or by the framework, never by hand."""

    def __init__(
        self,
        *,
        config: ExperimentConfig,
        hparams: Mapping[str, Any],
        trial_id: int,
        experiment_id: int,
        trial_seed: int,
        distributed: DistributedContext,
    ) -> None:
        self.distributed = distributed
        self.config = config
        self._hparams = dict(hparams)
        self._trial_id = trial_id
        self._experiment_id = experiment_id
        self._trial_seed = trial_seed
        self._stop_requested = False

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """A context for debugging: no runner, no record, hyperparameters drawn at random from the config.

        Args:
            config: an experiment config; it may leave out the searcher. The trial and
                experiment ids are 0, and the keys about resources and storage are ignored.
        """
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
    def _from_record(cls, config: Mapping[str, Any] | None, hparams: Mapping[str, Any] | None, **keys: Any) -> Self:
        """The context of a recorded trial, outside of its training; keywords are further keys of its config."""
        return cls.from_config(
            {
                **{key: config[key] for key in _READ_AGAIN if config and config.get(key) is not None},
                "hyperparameters": {name: {"type": "const", "val": value} for name, value in (hparams or {}).items()},
                **keys,
            }
        )

    @classmethod
    def from_core(cls, core: Context) -> Self:
        """The context of the trial that this process trains; for frameworks."""
        return cls(
            config=core.config,
            hparams=core.trial.hparams,
            trial_id=core.trial.trial_id,
            experiment_id=core.trial.experiment_id,
            trial_seed=core.trial.trial_seed,
            distributed=core.distributed,
        )

    def get_experiment_config(self) -> dict[str, Any]:
        """The complete experiment config, defaults included."""
        return self.config.dump()

    def get_data_config(self) -> dict[str, Any]:
        """The config's ``data``, which is yours to fill."""
        return dict(self.config.data)

    def get_experiment_id(self) -> int:
        """The experiment's id in the record."""
        return self._experiment_id

    def get_trial_id(self) -> int:
        """The trial's id in the record."""
        return self._trial_id

    def get_trial_seed(self) -> int:
        """The seed of everything random in this trial, 0 <= seed < 2**32."""
        return self._trial_seed

    def get_hparams(self) -> dict[str, Any]:
        """Hyperparameter names to values, nested as in the config."""
        return dict(self._hparams)

    def get_hparam(self, name: str) -> Any:
        """The value of one hyperparameter.

        Raises:
            ValueError: there is none of this name; lists those there are.
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
        """Records per batch over all slots: the hyperparameter, rounded down to a multiple of the slots.

        Raises:
            InvalidExperimentException: the hyperparameter is missing, no integer, or less than the slots.
        """
        return self.get_per_slot_batch_size() * self.distributed.size

    def get_per_slot_batch_size(self) -> int:
        """Records per batch on each slot. Raises as `get_global_batch_size`."""
        size, slots = self._hparams.get("global_batch_size"), self.distributed.size
        if not isinstance(size, int) or isinstance(size, bool) or size < slots:
            raise InvalidExperimentException(
                f"the hyperparameter global_batch_size is {size!r}; expected an integer of at least {slots}, "
                "for example 'hyperparameters: {global_batch_size: 64}'"
            )
        if size % slots:
            warnings.warn(
                f"global_batch_size {size} does not divide by {slots} slots; using {size // slots * slots}",
                stacklevel=3,
            )
        return size // slots

    def _batches_per_epoch(self) -> int | None:
        """By the config's ``records_per_epoch``; None: it does not say."""
        records = self.config.records_per_epoch
        return max(records // self.get_global_batch_size(), 1) if records else None

    def get_stop_requested(self) -> bool:
        """Whether the trial was asked to stop by `set_stop_requested`."""
        return self._stop_requested

    def set_stop_requested(self, stop_requested: bool) -> None:
        """Ask the trial to end: it finishes the step, checkpoints and exits for good.

        Raises:
            AssertionError: the argument is no bool.
        """
        if not isinstance(stop_requested, bool):
            raise AssertionError(f"stop_requested must be True or False, not {stop_requested!r}")
        self._stop_requested = stop_requested
