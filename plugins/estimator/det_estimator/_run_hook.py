"""Hooks of a session that also hear of checkpoints and of the trial's end."""

from __future__ import annotations

import tensorflow as tf


class RunHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Derive from it, and hand objects over in ``TrainSpec.hooks``, to be told what a session's hooks are not."""

    def on_checkpoint_load(self, checkpoint_dir: str) -> None:
        """The trial goes on from this checkpoint; on each slot, once its state is back. Nothing resumed, no call."""

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        """A checkpoint was written into this directory; on the chief only. What you add here is stored along."""

    def on_trial_close(self) -> None:
        """Training has ended, well or not; on each slot."""
