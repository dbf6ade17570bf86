"""SDK class for checkpoints, which can be downloaded, loaded and annotated."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from det_core import storage
from det_core.errors import DetError
from det_core.experimental._checkpoint_framework import framework_at
from det_core.experimental._downloads import download_checkpoint
from det_core.experimental._exports import default_export_path, export_checkpoint
from det_core.experimental._recorded_code import recorded_code
from det_core.experimental._shared_store import StoredObject
from det_core.interfaces.records import CheckpointRecord, ExperimentRecord, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.plugins import plugin_registry
from det_core.trial.trial_description import loading_as


class Checkpoint(StoredObject):
    """A checkpoint of a trial. Returned by methods such as `ExperimentReference.top_checkpoint`.

    Example:
        >>> checkpoint = Determined().get_experiment(1).top_checkpoint()
        >>> checkpoint.batch_number, checkpoint.hparams["lr"]
        (200, 0.1)
        >>> checkpoint.validation["metrics"]["validationMetrics"]
        {'accuracy': 0.75}

    Args:
        uuid: id of the checkpoint, also in its storage.
        experiment_config: complete config of its experiment.
        experiment_id: id of its experiment.
        trial_id: id of the trial that saved it.
        hparams: hyperparameters of the trial.
        batch_number: number of batches that the trial had trained.
        start_time: time of completion in ISO 8601. The tracking store does not keep the time at which the save began.
        end_time: same as ``start_time``.
        resources: paths of its files mapped to sizes in bytes. Directories end in ``/``.
        validation: ``{"metrics": {"validationMetrics": {name: value}}, "state": ...}``, the validation at its batch.
            ``metrics`` is empty if there was none.
        determined_version: release that saved it, if known.
        framework: framework and version, such as ``torch-2.13.0``.
        format: format of its main file.
        model_version: number of the model version, if it was requested as one.
        model_name: name of the model.
        metadata: metadata that it was saved with, as edited since.
        master: URL of its tracking store. None stands for the embedded store.
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

    def download(self, path: str | None = None) -> str:
        """Copy the checkpoint into a directory and verify it. A directory that already holds it is left as it is.

        ``metadata.json`` in the directory contains the present metadata.

        Example:
            >>> checkpoint = Determined().get_experiment(1).top_checkpoint()
            >>> checkpoint.download("best")
            'best'

        Args:
            path: new or empty directory. By default ``checkpoints/<uuid>`` below the working directory.

        Returns:
            The path of the directory.

        Raises:
            DetError: the directory contains something else, or the checkpoint is not complete.
            StorageError: the storage cannot be read.
        """
        target = Path(path) if path is not None else Path("checkpoints", self.uuid)
        record = self._store.checkpoint(self.uuid)
        held = storage.copied_from(target)
        if held == self.uuid:
            storage.sign_copy(target, self.uuid, record.metadata)
        elif held:
            raise DetError(f"{target} holds checkpoint {held}, not {self.uuid}; remove it, or pass another path")
        else:
            download_checkpoint(self._store, record, target)
        return str(target)

    def load(self, path: str | None = None, tags: list[str] | None = None, **kwargs: Any) -> Any:
        """Load the checkpoint into memory. It is downloaded first if necessary.

        If the trial's class cannot be imported here, it comes from the code that was submitted with the experiment.
        Without ``trust=True``, this code runs only if you submitted it to your own embedded tracking store.

        Args:
            path: directory that it is in, or is downloaded to. By default ``checkpoints/<uuid>``.
            tags: as in `load_from_path`.
            kwargs: as in `load_from_path`.

        Returns:
            As in `load_from_path`.

        Raises:
            DetError: `download_checkpoint` or `load_from_path` failed. See there.
        """
        directory = self.download(path)
        code = partial(recorded_code, self._store, self.uuid)
        with loading_as("checkpoint.load(trial_class=MyTrial)", self.experiment_config.get("entrypoint"), code):
            return _load(directory, tags, kwargs)

    def export(self, format: str, path: str | None = None) -> str:
        """Write the weights in a format of other libraries.

        Args:
            format: PyTorch: ``safetensors``, ``state_dict`` (for ``torch.load``) or ``dcp`` (for
                ``torch.distributed.checkpoint``). A file or directory of the format is named ``model``, or ``model_0``,
                ``model_1`` and so on if there are several models.
            path: new or empty directory. By default ``exports/<uuid>`` below the working directory.

        Returns:
            The path of the directory.

        Raises:
            DetError: the directory contains something, or the checkpoint is not complete or has no such format. The
                message says what to do.
            StorageError: the storage cannot be read, or the library of the format is not installed.
            UntrustedCheckpoint: reading the checkpoint could run code that it contains.
        """
        target = Path(path) if path is not None else default_export_path(self.uuid)
        export_checkpoint(self._store, self._store.checkpoint(self.uuid), format, target)
        return str(target)

    def add_metadata(self, metadata: dict[str, Any]) -> None:
        """Add keys to the metadata in the tracking store, or replace their values.

        Stored files do not change. Later downloads contain the new metadata.

        Example:
            >>> checkpoint = Determined().get_experiment(1).top_checkpoint()
            >>> checkpoint.add_metadata({"reviewed": True})
            >>> checkpoint.metadata["reviewed"]
            True

        Args:
            metadata: JSON-compatible metadata.

        Raises:
            TypeError: a value is not JSON-compatible. The message names the key.
        """
        self.metadata = dict(self._store.edit_checkpoint_metadata(self.uuid, add=metadata).metadata)

    def remove_metadata(self, keys: list[str]) -> None:
        """Remove top-level keys of the metadata. Keys that do not exist are ignored."""
        self.metadata = dict(self._store.edit_checkpoint_metadata(self.uuid, remove=keys).metadata)

    @staticmethod
    def load_from_path(path: str, tags: list[str] | None = None, **kwargs: Any) -> Any:
        """Load a downloaded checkpoint with the framework that saved it, which must be installed.

        Args:
            path: directory of the checkpoint.
            tags: tags of the SavedModel, if it has one.
            kwargs: arguments for the framework: ``trial_class=`` to use your class instead of the one that the
                checkpoint names, ``trial_kwargs=`` with arguments of the class in addition to the context,
                ``trust=True`` to run code that the checkpoint contains, and for PyTorch ``map_location`` and
                ``weights_only`` as in ``torch.load``.

        Returns:
            PyTorch: the ``torch.nn.Module`` if the trial has ``build_model``, otherwise the trial with its models in
            ``trial.context.models``. Keras: the compiled model. Estimators: the SavedModel.

        Raises:
            CheckpointNotFound: there is no checkpoint at ``path``.
            CheckpointCorrupt: its metadata is damaged.
            InvalidTrial: no installed framework loads it, its trial class is not found, or takes other arguments.
            UntrustedCheckpoint: loading would run code that the checkpoint contains.
        """
        with loading_as("Checkpoint.load_from_path(path, trial_class=MyTrial)"):
            return _load(path, tags, kwargs)

    def _identity(self) -> dict[str, Any]:
        model = {} if self.model_name is None else {"model": self.model_name, "version": self.model_version}
        validation = (self.validation.get("metrics") or {}).get("validationMetrics")
        return {
            **model,
            "uuid": self.uuid,
            "trial_id": self.trial_id,
            "batch": self.batch_number,
            **({"validation": validation} if validation else {}),
        }

    @classmethod
    def _of(cls, store: TrackingStore, records: Iterable[CheckpointRecord]) -> list[Checkpoint]:
        """Create the objects for recorded checkpoints."""
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
        record: CheckpointRecord,
        trial: TrialRecord,
        experiment: ExperimentRecord,
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


def _load(path: str, tags: list[str] | None, kwargs: Mapping[str, Any]) -> Any:
    loader = plugin_registry().loader(framework_at(Path(path)))
    try:
        inspect.signature(loader).bind(path, tags=tags, **kwargs)
    except TypeError as error:
        known = sorted(inspect.signature(loader).parameters.keys() - {"path", "tags"})
        raise TypeError(
            f"the checkpoint's framework does not take these arguments: {error}; it takes {known}"
        ) from None
    return loader(path, tags=tags, **kwargs)
