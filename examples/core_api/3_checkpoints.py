"""Step 3: save a checkpoint after each epoch, stop on request, and resume from the latest checkpoint.

The script can be killed or paused at any time, and its result stays the same.
"""

from __future__ import annotations

from digits import Digits

import det_core as det


def main() -> None:
    with det.core.init() as core_context:
        model, epoch = Digits(lr=0.1, seed=1), 0
        latest = core_context.latest_checkpoint  # None at the first start
        if latest:
            with core_context.checkpoint.restore_path(latest) as path:
                model.load(path)
            epoch = core_context.checkpoint.get_metadata(latest)["steps_completed"]
            print(f"continuing after epoch {epoch}")
        while epoch < 10:
            epoch += 1
            loss = model.train_epoch(epoch)
            core_context.train.report_training_metrics(steps_completed=epoch, metrics={"loss": loss})
            core_context.train.report_validation_metrics(steps_completed=epoch, metrics={"accuracy": model.accuracy()})
            with core_context.checkpoint.store_path({"steps_completed": epoch}) as (path, _):
                model.save(path)
            if core_context.preempt.should_preempt():
                return


if __name__ == "__main__":
    main()
