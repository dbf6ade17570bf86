"""`DetCallback`, which connects a ``Trainer`` of Hugging Face with the Core API."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint

from det_core import core
from det_core.errors import CheckpointNotFound
from det_transformers import _epoch_random
from det_transformers._search_lengths import SearchLengths, values_at

_log = logging.getLogger("det.transformers")

_CLOCK_TIMES = ("_runtime", "_per_second")
"""Ends of the names of metrics that measure time, which differ whenever the same step is trained again."""
_STATE = "trainer_state.json"
_USER_DATA = "my_data.json"


class DetCallback(TrainerCallback):
    """Callback that reports metrics, stores checkpoints, stops when asked, and follows the lengths of a search.

    Create it before ``Trainer.train`` is called. If the trial has a checkpoint, ``args.resume_from_checkpoint`` names
    its directory afterwards, which has to be passed on. Under a runner, ``searcher.max_length`` of the config replaces
    ``args.max_steps`` and ``args.num_train_epochs``. One step of the ``Trainer`` is one batch of det, also if it
    accumulates gradients.

    Args:
        core_context: context that ``core.init`` returned, within its ``with`` block.
        args: arguments of the ``Trainer``.
        filter_metrics: parts of names of metrics. Other metrics are not reported. None = report all.
        user_data: JSON-compatible values to store with each checkpoint, as ``my_data.json``.

    Raises:
        ValueError: an argument does not fit the run. The message says what to write instead.
        CheckpointCorrupt, StorageError: the latest checkpoint cannot be restored.

    Example::

        with core.init() as core_context:
            callback = DetCallback(core_context, args)
            trainer = Trainer(model, args, train_dataset=train, eval_dataset=test, callbacks=[callback])
            trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    """

    def __init__(
        self,
        core_context: core.Context,
        args: TrainingArguments,
        filter_metrics: Sequence[str] | None = None,
        user_data: Mapping[str, Any] | None = None,
    ) -> None:
        _check(args, core_context.distributed)
        self._core = core_context
        self._is_chief = core_context.distributed.rank == 0
        self._filter = filter_metrics
        self._user_data = user_data
        self._lengths = SearchLengths(core_context)
        self._restored = ExitStack()
        self._resumed: TrainerState | None = None
        self._random = _epoch_random.capture()
        """State of the random generators at the start of the epoch."""
        self._stored: dict[int, str] = {}
        """Storage ids of checkpoints by step."""
        self._reported: dict[str, tuple[int, set[str]]] = {}
        """Latest step of each group of metrics, and the names that it has."""
        self._postponed_save = False
        self._is_stopping = False
        self._lengths.set_training_length(args)
        if core_context.latest_checkpoint:
            self._restore(core_context.latest_checkpoint, args)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Check that the ``Trainer`` continues from the restored checkpoint."""
        if self._resumed and state.global_step != self._resumed.global_step:
            raise RuntimeError(
                f"the Trainer begins at step {state.global_step}, but the trial has a checkpoint of step "
                f"{self._resumed.global_step}; call trainer.train(resume_from_checkpoint=args.resume_from_checkpoint) "
                "with the args of DetCallback"
            )
        return control

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Draw the order of a resumed epoch from the same random numbers as before."""
        if self._resumed:
            _epoch_random.restore(self._random)
        self._resumed, self._random = None, _epoch_random.capture()
        return control

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Decide what the ``Trainer`` does after a step."""
        self._restored.close()
        if _ends_epoch(state):
            # The evaluation of the epoch follows. A checkpoint from before would resume after it.
            self._postponed_save, control.should_save = control.should_save, False
        else:
            self._decide(state, control)
        return control

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Decide what the ``Trainer`` does after an epoch, or after it has stopped within one."""
        if _ends_epoch(state):
            control.should_save |= self._postponed_save
            self._postponed_save = False
            self._decide(state, control)
        elif self._is_stopping:
            control.should_log = control.should_evaluate = control.should_save = False
        return control

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **event: Any
    ) -> TrainerControl:
        """Report training metrics."""
        logs = event["logs"]
        is_summary = "total_flos" in logs  # of this process, at the end of training
        if not is_summary and not any(name.startswith("eval_") for name in logs):
            self._report("training", state.global_step, logs)
        return control

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **event: Any
    ) -> TrainerControl:
        """Report validation metrics."""
        self._report("validation", state.global_step, event["metrics"])
        return control

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Store the checkpoint that the ``Trainer`` has written, and end what the search asked for."""
        directory = _local_directory(args, state.global_step)
        random = _epoch_random.capture() if _ends_epoch(state) else self._random
        _epoch_random.write(random, directory, self._core.distributed.rank)
        if self._is_chief and self._user_data is not None:
            (directory / _USER_DATA).write_text(json.dumps(self._user_data), encoding="utf-8")
        metadata: dict[str, Any] = {"steps_completed": state.global_step}
        if (best := _best_step(state)) in self._stored:
            metadata["best_checkpoint"] = self._stored[best]
        self._core.distributed.allgather(None)  # until all ranks have written their files
        self._stored[state.global_step] = self._core.checkpoint.upload(directory, metadata, shard=True)
        if self._lengths.complete(state):
            self._is_stopping = control.should_training_stop = True
        return control

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Report an end that neither the search nor a request to stop has asked for."""
        self._restored.close()
        if self._is_chief and self._lengths.operation and not self._is_stopping:
            self._core.train.report_early_exit(core.EarlyExitReason.USER_REQUESTED_STOP)
        return control

    def _restore(self, storage_id: str, args: TrainingArguments) -> None:
        path = self._restored.enter_context(self._core.checkpoint.restore_path(storage_id))
        # The original stored the directory above that of the Trainer.
        directory = Path(get_last_checkpoint(str(path)) or path)  # type: ignore[no-untyped-call]
        args.resume_from_checkpoint = str(directory)
        args.restore_callback_states_from_checkpoint = True
        self._resumed = state = TrainerState.load_from_json(str(directory / _STATE))
        self._random = _epoch_random.read(directory, self._core.distributed.rank) or self._random
        self._reported["validation"] = state.global_step, set(values_at(state))
        if (best := _best_step(state)) is not None and args.load_best_model_at_end:
            own = storage_id if best == state.global_step else None
            if stored := self._core.checkpoint.get_metadata(storage_id).get("best_checkpoint", own):
                self._restore_best(stored, best, args)
        if self._lengths.complete(state) or 0 < args.max_steps <= state.global_step:
            args.max_steps, args.num_train_epochs = -1, 0  # the Trainer would train one more step

    def _restore_best(self, storage_id: str, step: int, args: TrainingArguments) -> None:
        self._stored[step] = storage_id
        try:
            self._core.checkpoint.get_metadata(storage_id)
        except CheckpointNotFound:  # retention keeps the best one by the searcher's metric, which may be another
            _log.warning(
                "the best checkpoint so far, %s of step %d, was removed; unless a later step is better, the Trainer "
                "ends with its last model",
                storage_id,
                step,
            )
            return
        self._core.checkpoint.download(storage_id, _local_directory(args, step))

    def _decide(self, state: TrainerState, control: TrainerControl) -> None:
        self._lengths.report_progress(state)
        if self._lengths.is_reached(state):
            control.should_log = control.should_save = True
            control.should_evaluate |= self._lengths.needs_evaluation(state)
        if self._core.preempt.should_preempt():
            self._is_stopping = control.should_save = control.should_training_stop = True
        # The Trainer does not save the losses that it has not logged.
        control.should_log |= control.should_save

    def _report(self, group: str, step: int, metrics: Mapping[str, Any]) -> None:
        latest, names = self._reported.get(group, (step, set()))
        known = names if latest == step else set()
        new = {
            name: value
            for name, value in metrics.items()
            if name not in known and not name.endswith(_CLOCK_TIMES) and self._selects(name)
        }
        self._reported[group] = step, known | new.keys()
        if self._is_chief and new:
            self._core.train.report_metrics(group, step, new)

    def _selects(self, name: str) -> bool:
        return self._filter is None or any(part in name for part in self._filter)


def _check(args: TrainingArguments, distributed: core.DistributedContext) -> None:
    if args.save_only_model:
        raise ValueError("save_only_model is True, so training could not be resumed; pass save_only_model=False")
    if args.world_size != distributed.size:
        raise ValueError(
            f"the Trainer has {args.world_size} processes, but the core context has {distributed.size}; with several, "
            "pass core.init(distributed=core.DistributedContext.from_torch_distributed())"
        )


def _local_directory(args: TrainingArguments, step: int) -> Path:
    """Return the directory into which the ``Trainer`` saves after a step."""
    return Path(cast(str, args.output_dir), f"{PREFIX_CHECKPOINT_DIR}-{step}")


def _best_step(state: TrainerState) -> int | None:
    """Return the step of the best checkpoint. A better evaluation may have followed, at a step without one."""
    return int(state.best_model_checkpoint.rpartition("-")[2]) if state.best_model_checkpoint else None


def _ends_epoch(state: TrainerState) -> bool:
    return float(state.epoch).is_integer()
