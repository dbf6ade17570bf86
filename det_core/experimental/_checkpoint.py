"""Checkpoints as objects: download them, load them, note things about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from det_core import storage
from det_core.errors import CheckpointNotFound, DetError, InvalidTrial
from det_core.experimental._files import download
from det_core.experimental._record import Recorded
from det_core.interfaces import tracking
from det_core.interfaces.tracking import TrackingStore
from det_core.plugins import registry
from det_core.specs import FrameworkSpec
from det_core.trial.origin import recorded


class Checkpoint(Recorded):
    """One checkpoint of a trial. Made by methods such as `ExperimentReference.top_checkpoint`.

    Example:
        >>> checkpoint = Determined().get_experiment(1).top_checkpoint()
        >>> checkpoint.batch_number, checkpoint.hparams["lr"]
        (200, 0.1)
        >>> checkpoint.validation["metrics"]["validationMetrics"]
        {'accuracy': 0.75}

    Args:
        uuid: its id, also in its storage.
        experiment_config: the complete config of its experiment.
        experiment_id: the experiment.
        trial_id: the trial that saved it.
        hparams: the trial's hyperparameters.
        batch_number: how many batches the trial had trained.
        start_time: in ISO 8601; the record keeps one time, that of the completion.
        end_time: the same.
        resources: path -> size in bytes of each of its files; directories end in ``/``.
        validation: ``{"metrics": {"validationMetrics": {name: value}}, "state": ...}``, the validation at its batch;
            no metrics if there was none.
        determined_version: the release that saved it, where it says so.
        framework: such as ``torch-2.13.0``.
        format: of its main file.
        model_version: its number as a version of a model, if it was asked for as one.
        model_name: the model.
        metadata: what was saved with it, and added since.
        master: the URL of the record that it is in; None = the embedded one.
    """

    def __init__(
        self,
        uuid: str,
        experiment_config: dict[str, Any],
        experiment_id: int,
        trial_id: int,
        hparams: dict[str, Any],
        batch_number: int,
        start_time: str,
        end_time: str,
        resources: dict[str, Any],
        validation: dict[str, Any],
        determined_version: str | None = None,
        framework: str | None = None,
        format: str | None = None,
        model_version: int | None = None,
        model_name: str | None = None,
        metadata: dict[str, Any] | None = None,
        master: str | None = None,
    ) -> None:
        self.uuid = uuid
        self.experiment_config = experiment_config
        self.experiment_id = experiment_id
        self.trial_id = trial_id
        self.hparams = hparams
        self.batch_number = batch_number
        self.start_time = start_time
        self.end_time = end_time
        self.resources = resources
        self.validation = validation
        self.determined_version = determined_version
        self.framework = framework
        self.format = format
        self.model_version = model_version
        self.model_name = model_name
        self.metadata = metadata or {}
        self._master = master or ""

    def __repr__(self) -> str:
        model = "" if self.model_name is None else f", model={self.model_name!r}, version={self.model_version}"
        return f"{type(self).__name__}(uuid={self.uuid!r}, trial_id={self.trial_id}{model})"

    def download(self, path: str | None = None) -> str:
        """Copy it into a directory, verified. One that holds this checkpoint already is left as it is.

        Its ``metadata.json`` has the metadata of now.

        Example:
            >>> checkpoint = Determined().get_experiment(1).top_checkpoint()
            >>> checkpoint.download("best")
            'best'

        Args:
            path: the directory, new or empty; by default ``checkpoints/<uuid>`` below the working directory.

        Returns:
            The path of the directory.

        Raises:
            DetError: the directory holds something else, or the checkpoint is not complete.
            StorageError: its storage cannot be read.
        """
        target = Path(path) if path is not None else Path("checkpoints", self.uuid)
        record = self._store.checkpoint(self.uuid)
        held = storage.copied_from(target)
        if held == self.uuid:
            storage.sign_copy(target, self.uuid, record.metadata)
        elif held:
            raise DetError(f"{target} holds checkpoint {held}, not {self.uuid}; remove it, or pass another path")
        else:
            download(record, target)
        return str(target)

    def load(self, path: str | None = None, tags: list[str] | None = None, **kwargs: Any) -> Any:
        """Load it into memory, downloaded first if it is not there yet.

        Args:
            path: where it is, or is downloaded to; by default ``checkpoints/<uuid>``.
            tags: as for `load_from_path`, and so are the keywords.

        Returns:
            As `load_from_path`, and it raises as that and as `download`.
        """
        directory = self.download(path)
        with recorded(self.experiment_config.get("entrypoint")):
            return self.load_from_path(directory, tags=tags, **kwargs)

    def add_metadata(self, metadata: dict[str, Any]) -> None:
        """Add keys to its metadata, or replace their values, in the record.

        What is stored stays as it is; what is downloaded from now on says it, too.

        Example:
            >>> checkpoint = Determined().get_experiment(1).top_checkpoint()
            >>> checkpoint.add_metadata({"reviewed": True})
            >>> checkpoint.metadata["reviewed"]
            True

        Args:
            metadata: what JSON can hold.

        Raises:
            TypeError: JSON cannot hold it; names the key.
        """
        self.metadata = dict(self._store.edit_checkpoint_metadata(self.uuid, add=metadata).metadata)

    def remove_metadata(self, keys: list[str]) -> None:
        """Remove top-level keys of its metadata, if they are there."""
        self.metadata = dict(self._store.edit_checkpoint_metadata(self.uuid, remove=keys).metadata)

    @staticmethod
    def load_from_path(path: str, tags: list[str] | None = None, **kwargs: Any) -> Any:
        """Load a downloaded checkpoint by the framework that saved it, which must be installed.

        Args:
            path: its directory.
            tags: of the SavedModel, if it has one.
            kwargs: for the framework: ``trial_class=``, your class instead of the one that the checkpoint names;
                ``trust=True``, to run code that the checkpoint brings along; and for PyTorch those of ``torch.load``,
                ``map_location`` and ``weights_only``.

        Returns:
            PyTorch: the ``torch.nn.Module`` of a trial that has ``build_model``; a trial that wraps its own, otherwise,
            which has them in ``trial.context.models``. Keras: the compiled model. Estimators: the SavedModel.

        Raises:
            CheckpointNotFound: there is none at ``path``.
            CheckpointCorrupt: its description of itself is damaged.
            InvalidTrial: no installed framework loads it, or its trial class is not found.
            UntrustedCheckpoint: it would run code that it brings along.
        """
        spec = _framework_of(Path(path))
        return registry().loader(spec)(path, tags=tags, **kwargs)

    @classmethod
    def _of(cls, store: TrackingStore, records: Iterable[tracking.Checkpoint]) -> list[Checkpoint]:
        """The objects for rows of the record."""
        trial, experiment = cache(store.trial), cache(store.experiment)
        validations = cache(lambda trial_id: store.checkpoint_validations(trial_id=trial_id))
        return [
            cls._from_record(
                record,
                trial(record.trial_id),
                experiment(trial(record.trial_id).experiment_id),
                validations(record.trial_id).get(record.uuid),
                store.url,
            )
            for record in records
        ]

    @classmethod
    def _from_record(
        cls,
        record: tracking.Checkpoint,
        trial: tracking.Trial,
        experiment: tracking.Experiment,
        validation: Mapping[str, Any] | None,
        master: str,
    ) -> Checkpoint:
        time = record.time.isoformat()
        return cls(
            uuid=record.uuid,
            experiment_config=dict(experiment.config),
            experiment_id=experiment.id,
            trial_id=trial.id,
            hparams=dict(trial.hparams),
            batch_number=record.steps_completed or 0,
            start_time=time,
            end_time=time,
            resources=dict(record.resources),
            validation={
                "metrics": {"validationMetrics": dict(validation)} if validation else {},
                "state": "COMPLETED" if validation else None,
            },
            determined_version=record.metadata.get("determined_version"),
            framework=record.metadata.get("framework"),
            format=record.metadata.get("format"),
            metadata=dict(record.metadata),
            master=master,
        )


def _framework_of(path: Path) -> FrameworkSpec:
    """The framework that loads the checkpoint at ``path``."""
    file = path / storage.METADATA_FILE
    if not file.is_file():
        raise CheckpointNotFound(
            f"{path} is no directory of a checkpoint: it has no {file.name}; to get one: det checkpoint download UUID"
        )
    frameworks = [spec for spec in registry().specs("framework") if isinstance(spec, FrameworkSpec) and spec.load]
    metadata = storage.read_object(file)
    names = [metadata["trial_framework"]] if "trial_framework" in metadata else _old_names(path, metadata)
    for name in names:
        for spec in frameworks:
            if name in (spec.name, *spec.old_names):
                return spec
    installed = ", ".join(spec.name for spec in frameworks) or "none, try: pip install det-torch"
    raise InvalidTrial(
        f"no installed framework loads {path}, a checkpoint of {names[0] if names else None!r} (installed: {installed})"
    )


def _old_names(path: Path, metadata: Mapping[str, Any]) -> list[str]:
    """What a checkpoint of the original says of its framework, the most telling first."""
    described = path / "load_data.json"
    trial_type = storage.read_object(described).get("trial_type") if described.is_file() else None
    names = (trial_type, metadata.get("format"), str(metadata.get("framework") or "").partition("-")[0])
    return [name for name in names if name]
