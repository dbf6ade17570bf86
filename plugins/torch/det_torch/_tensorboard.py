"""TensorBoard files of a trial, with their directory, writer and upload to checkpoint storage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from det_core.core import TrainContext
from det_core.errors import InvalidTrial
from det_core.owner_process import OwnerProcess
from det_core.trial import tensorboard_upload

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TrialTensorboard:
    """The TensorBoard files of this process.

    Args:
        train: part of the core context that stores the files.
    """

    def __init__(self, train: TrainContext) -> None:
        global _of_this_process
        _of_this_process = self
        self._owner = OwnerProcess("the TensorBoard writer")
        self._train = train
        self._writer: SummaryWriter | None = None

    @property
    def path(self) -> Path:
        """Directory whose files are stored, including files of other tools, such as profilers."""
        return self._train.get_tensorboard_path()

    @property
    def writer(self) -> SummaryWriter:
        """``torch.utils.tensorboard.SummaryWriter`` into `path`, created on first use.

        Raises:
            InvalidTrial: TensorBoard is not installed.
            RuntimeError: this is a forked child, which has no thread that writes.
        """
        self._owner.require()
        if self._writer is None:
            self._writer = _writer_class()(str(self.path))
        return self._writer

    def upload(self) -> None:
        """Flush the writer and store changed files. In TensorboardMode.AUTO the core context stores them by itself.

        Raises:
            StorageError: the storage failed.
        """
        if self._writer is not None:
            self._writer.flush()
        tensorboard_upload.upload_tensorboard_files(self._train)

    def close(self) -> None:
        """Close the writer. A forked child leaves that to its parent."""
        if not self._owner.is_here:
            return
        global _of_this_process
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if _of_this_process is self:
            _of_this_process = None


_of_this_process: TrialTensorboard | None = None


class TorchWriter:
    """TensorBoard writer of the trial in this process, for older trials that use ``TorchWriter().writer``."""

    @property
    def writer(self) -> SummaryWriter:
        """Writer that ``context.get_tensorboard_writer()`` returns.

        Raises:
            InvalidTrial: there is no trial in this process, or TensorBoard is not installed.
        """
        if _of_this_process is None:
            raise InvalidTrial("TorchWriter() works only in a trial that det runs; elsewhere, create a SummaryWriter")
        return _of_this_process.writer


def _writer_class() -> type[SummaryWriter]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        from det_core.package_commands import package_command

        raise InvalidTrial(
            f"the TensorBoard writer needs the package tensorboard ({error}); install it: "
            f"{package_command('install', 'tensorboard')}"
        ) from error
    return SummaryWriter
