"""The way to everything in a record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from det_core.config import load_config, parse_config
from det_core.experimental._checkpoint import Checkpoint
from det_core.experimental._experiment import ExperimentReference
from det_core.experimental._model import Model, ModelOrderBy, ModelSortBy, sort_of
from det_core.experimental._record import Recorded, as_yaml, open_record
from det_core.experimental._trial import TrialMetrics, TrialReference
from det_core.home import user_name
from det_core.scratch import scratch_directory


class Determined(Recorded):
    """Experiments, trials, checkpoints and models of one record.

    Example:
        >>> det = Determined()
        >>> det.get_experiment(1).top_checkpoint().uuid
        'best-one'

    Args:
        master: the URL of the record, such as ``postgresql://user@host/database``. None: that of the environment
            variable ``DET_MASTER`` or ``DET_MASTER_ADDR``, else, in a task, that of the task, else the embedded one.
        user: who is noted as the owner of what is made; by default who runs this process.

    Raises:
        TrackingError: the record cannot be opened. One behind an http URL comes with a later release.
    """

    def __init__(self, master: str | None = None, user: str | None = None) -> None:
        self._master = open_record(master).url
        self._user = user or user_name()

    def create_experiment(
        self, config: str | Path | Mapping[str, Any], model_dir: str | Path | None = None
    ) -> ExperimentReference:
        """Record an experiment and train it in the background.

        Args:
            config: the path of a YAML file, or what such a file says.
            model_dir: the directory with its code; None: it needs none.

        Raises:
            ConfigError: the config is wrong.
            InvalidExperimentException: it asks for what cannot run here.
            DetError: the directory is missing or too large.
        """
        from det_core.runner import start_detached, submit

        if isinstance(config, Mapping):
            parsed = parse_config(config)
            text = as_yaml(parsed)
        else:
            parsed, text = load_config(config), Path(config).read_text()
        with ExitStack() as ending:
            nothing = ending.enter_context(scratch_directory("empty"))
            directory = Path(nothing if model_dir is None else model_dir)
            experiment = submit(self._store, parsed, directory, original_config=text)
        start_detached(self._store, experiment.id)
        return self.get_experiment(experiment.id)

    def get_experiment(self, experiment_id: int) -> ExperimentReference:
        """One experiment.

        Raises:
            RecordNotFound: there is no such; and so for the other ``get_`` methods.
        """
        return ExperimentReference(self._store.experiment(experiment_id).id, self._master)

    def list_experiments(self) -> list[ExperimentReference]:
        """All experiments, newest first."""
        return [ExperimentReference(one.id, self._master) for one in self._store.experiments()]

    def get_trial(self, trial_id: int) -> TrialReference:
        """One trial."""
        return TrialReference(self._store.trial(trial_id).id, self._master)

    def iter_trials_metrics(self, trial_ids: Iterable[int], group: str | None = None) -> Iterator[TrialMetrics]:
        """What several trials reported, trial by trial, as `TrialReference.iter_metrics`."""
        for trial_id in trial_ids:
            yield from self.get_trial(trial_id).iter_metrics(group)

    def get_checkpoint(self, uuid: str) -> Checkpoint:
        """One checkpoint."""
        return Checkpoint._of(self._store, [self._store.checkpoint(uuid)])[0]

    def create_model(self, name: str, description: str | None = "", metadata: dict[str, Any] | None = None) -> Model:
        """Add a model to the registry.

        Args:
            name: unique, without slashes, no number.
            description: what it is for.
            metadata: what JSON can hold.

        Raises:
            RecordExists: there is a model of this name.
            ValueError: the name is not as described.
        """
        made = self._store.create_model(name, description=description or "", metadata=metadata, owner=self._user)
        return Model._from_record(made, self._master)

    def get_model(self, name: str | int) -> Model:
        """One model, by its name, or by its id as an int."""
        return Model._from_record(self._store.model(name), self._master)

    def get_models(
        self,
        sort_by: ModelSortBy = ModelSortBy.NAME,
        order_by: ModelOrderBy = ModelOrderBy.ASCENDING,
        name: str = "",
        description: str = "",
    ) -> list[Model]:
        """The models of the registry, archived or not.

        Args:
            sort_by: the field to sort by.
            order_by: the direction.
            name: only those whose name has this in it, in upper or lower case.
            description: likewise.
        """
        found = self._store.models(
            sort_by=sort_of(sort_by),
            descending=order_by is ModelOrderBy.DESCENDING,
            name=name,
            description=description,
        )
        return [Model._from_record(one, self._master) for one in found]

    list_models = get_models
