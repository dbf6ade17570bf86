"""Entry point of the SDK to everything in a tracking store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from det_core.config import load_config, parse_config
from det_core.experimental._checkpoint import Checkpoint
from det_core.experimental._experiment import ExperimentReference
from det_core.experimental._model import Model, ModelOrderBy, ModelSortBy, to_model_sort
from det_core.experimental._progress_display import print_notices
from det_core.experimental._shared_store import StoredObject, config_to_yaml, open_shared_store
from det_core.experimental._trial import TrialMetrics, TrialReference
from det_core.home import user_name
from det_core.scratch import scratch_directory


class Determined(StoredObject):
    """Client for the experiments, trials, checkpoints and models of one tracking store.

    Example:
        >>> det = Determined()
        >>> det.get_experiment(1).top_checkpoint().uuid
        'best-one'

    Args:
        master: URL of the tracking store, such as ``postgresql://user@host/database``, or of a det server, such as
            ``https://host:8080``. By default the URL in the environment variable ``DET_MASTER`` or
            ``DET_MASTER_ADDR``, else within a task that of the task, else the embedded store.
        user: owner of the objects that this client creates. By default the user of this process.

    Raises:
        TrackingError: the tracking store cannot be opened, or the server refuses the token or this release.
    """

    def __init__(self, master: str | None = None, user: str | None = None) -> None:
        self._master = open_shared_store(master).url
        self._user = user or user_name()

    def _identity(self) -> dict[str, Any]:
        from sqlalchemy import make_url

        return {"master": make_url(self._master).render_as_string(hide_password=True), "user": self._user}

    def create_experiment(
        self, config: str | Path | Mapping[str, Any], model_dir: str | Path | None = None
    ) -> ExperimentReference:
        """Record an experiment and train it in the background, on the det server if the tracking store is that of one.

        Args:
            config: path of a YAML file, or its contents as a mapping.
            model_dir: directory with the code, or None if the experiment needs no code.

        Returns:
            The new experiment.

        Raises:
            ConfigError: the config is invalid.
            InvalidExperimentException: the config asks for something that cannot run here.
            DetError: the directory is missing or too large.
        """
        from det_core.runner import train_in_background

        if isinstance(config, Mapping):
            parsed = parse_config(config)
            text = config_to_yaml(parsed)
        else:
            parsed, text = load_config(config), Path(config).read_text(encoding="utf-8")
        print_notices(parsed)
        with ExitStack() as ending:
            nothing = ending.enter_context(scratch_directory("empty"))
            directory = Path(nothing if model_dir is None else model_dir)
            experiment = train_in_background(self._store, parsed, directory, original_config=text)
        return self.get_experiment(experiment.id)

    def get_experiment(self, experiment_id: int) -> ExperimentReference:
        """Return the experiment with this id.

        Raises:
            RecordNotFound: the experiment does not exist.
        """
        return ExperimentReference(self._store.experiment(experiment_id).id, self._master)

    def list_experiments(
        self, where: str = "", *, sort_by: str = "", reverse: bool = False, limit: int | None = None
    ) -> list[ExperimentReference]:
        """Return experiments, newest first.

        Example:
            >>> [experiment.id for experiment in Determined().list_experiments("lr < 0.2 and accuracy > 0.5")]
            [1]

        Args:
            where: include only experiments for which this filter holds together with one of their trials.
            sort_by: name of a value, as in filters, by which to sort instead, the least first.
            reverse: reverse the sort order.
            limit: maximum number of experiments.

        Raises:
            FilterError: the filter is malformed. The message names the position.
        """
        found = self._store.experiments(where=where, sort_by=sort_by, reverse=reverse, limit=limit, brief=True)
        return [ExperimentReference(one.id, self._master) for one in found]

    def get_trial(self, trial_id: int) -> TrialReference:
        """Return the trial with this id.

        Raises:
            RecordNotFound: the trial does not exist.
        """
        return TrialReference(self._store.trial(trial_id).id, self._master)

    def iter_trials_metrics(self, trial_ids: Iterable[int], group: str | None = None) -> Iterator[TrialMetrics]:
        """Yield the reports of several trials, one trial after the other.

        Args:
            trial_ids: ids of the trials.
            group: as in `TrialReference.iter_metrics`.

        Raises:
            RecordNotFound: a trial does not exist.
        """
        for trial_id in trial_ids:
            yield from self.get_trial(trial_id).iter_metrics(group)

    def get_checkpoint(self, uuid: str) -> Checkpoint:
        """Return the checkpoint with this id.

        Raises:
            RecordNotFound: the checkpoint does not exist.
        """
        return Checkpoint._of(self._store, [self._store.checkpoint(uuid)])[0]

    def create_model(self, name: str, description: str | None = "", metadata: dict[str, Any] | None = None) -> Model:
        """Add a model to the registry.

        Args:
            name: unique name that contains no slash and is not a number.
            description: what the model is for.
            metadata: JSON-compatible metadata.

        Returns:
            The new model.

        Raises:
            RecordExists: a model of this name exists.
            ValueError: the name is invalid.
        """
        made = self._store.create_model(name, description=description or "", metadata=metadata, owner=self._user)
        return Model._from_record(made, self._master)

    def get_model(self, name: str | int) -> Model:
        """Return a model by its name, or by its id as an int.

        Raises:
            RecordNotFound: the model does not exist.
        """
        return Model._from_record(self._store.model(name), self._master)

    def get_models(
        self,
        sort_by: ModelSortBy = ModelSortBy.NAME,
        order_by: ModelOrderBy = ModelOrderBy.ASCENDING,
        name: str = "",
        description: str = "",
    ) -> list[Model]:
        """Return the models of the registry, archived or not.

        Args:
            sort_by: field to sort by.
            order_by: direction of the order.
            name: include only names that contain this text, ignoring case.
            description: include only descriptions that contain this text, ignoring case.
        """
        found = self._store.models(
            sort_by=to_model_sort(sort_by),
            descending=order_by is ModelOrderBy.DESCENDING,
            name=name,
            description=description,
        )
        return [Model._from_record(one, self._master) for one in found]

    list_models = get_models
