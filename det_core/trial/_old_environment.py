"""``context.env`` of earlier releases."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class OldEnvironment(SimpleNamespace):
    """Facts about a trial that code in old checkpoints reads, and may set. Setting them has no effect."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"context.env has no attribute {name!r}; it has {', '.join(sorted(vars(self)))}. Use the methods of the "
            "context instead, such as get_hparams() and get_experiment_config()",
            name=name,
            obj=self,
        )


class OldConfig(dict[str, Any]):
    """Experiment config with the methods that ``context.env.experiment_config`` had. All keys have values."""

    def average_training_metrics_enabled(self) -> bool:
        """Return whether training metrics are averaged over the slots."""
        return bool(self["optimizations"]["average_training_metrics"])

    def debug_enabled(self) -> bool:
        """Return ``debug``."""
        return bool(self["debug"])

    def experiment_seed(self) -> int:
        """Return the seed of the experiment."""
        return int(self["reproducibility"]["experiment_seed"])

    def get_checkpoint_storage(self) -> dict[str, Any]:
        """Return the block ``checkpoint_storage``."""
        return self["checkpoint_storage"] or {}

    def get_entrypoint(self) -> str | list[str]:
        """Return the entrypoint, which is a trial class, a command, or the list of its words."""
        entrypoint: str | list[str] = self["entrypoint"]
        return entrypoint

    def get_min_checkpoint_period(self) -> dict[str, int]:
        """Return the minimum length between two checkpoints, by its unit."""
        return dict(self["min_checkpoint_period"])

    def get_min_validation_period(self) -> dict[str, int]:
        """Return the minimum length between two validations, by its unit."""
        return dict(self["min_validation_period"])

    def get_optimizations_config(self) -> dict[str, Any]:
        """Return the block ``optimizations``."""
        return dict(self["optimizations"])

    def get_records_per_epoch(self) -> int | None:
        """Return the number of records of an epoch, or None if the config does not have it."""
        return self["records_per_epoch"] or None

    def get_searcher_metric(self) -> str:
        """Return the metric of the search."""
        return str(self["searcher"]["metric"])

    def native_parallel_enabled(self) -> bool:
        """Return ``resources.native_parallel``."""
        return bool(self["resources"]["native_parallel"])

    def profiling_enabled(self) -> bool:
        """Return ``profiling.enabled``."""
        return bool(self["profiling"]["enabled"])

    def scheduling_unit(self) -> int:
        """Return the number of batches between two reports of training metrics."""
        return int(self["scheduling_unit"])

    def slots_per_trial(self) -> int:
        """Return the number of slots of each trial."""
        return int(self["resources"]["slots_per_trial"])
