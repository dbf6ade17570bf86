"""Session hook with additional methods for checkpoints and the end of the trial."""

from __future__ import annotations

import tensorflow as tf


class RunHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Base class for hooks in ``TrainSpec.hooks`` that also handle checkpoints and the end of the trial."""

    def on_checkpoint_load(self, checkpoint_dir: str) -> None:
        """Handle a resume, on each slot, after the state of the trial was restored from this directory."""

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        """Handle a written checkpoint, on the chief only. Files that you add to the directory are stored with it."""

    def on_trial_close(self) -> None:
        """Handle the end of training, on each slot, whether it succeeded or failed."""
