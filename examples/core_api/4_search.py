"""Step 4: hyperparameters come from the config, and the search method says how long to train."""

from __future__ import annotations

from digits import Digits

import det_core as det


def main() -> None:
    with det.core.init() as core_context:
        model, epoch = Digits(lr=core_context.trial.hparams.get("lr", 0.1), seed=1), 0
        latest = core_context.latest_checkpoint
        if latest:
            with core_context.checkpoint.restore_path(latest) as path:
                model.load(path)
            epoch = core_context.checkpoint.get_metadata(latest)["steps_completed"]
        for op in core_context.searcher.operations():
            while epoch < op.length:  # total number of epochs, see max_length in the config
                epoch += 1
                loss = model.train_epoch(epoch)
                core_context.train.report_training_metrics(steps_completed=epoch, metrics={"loss": loss})
                op.report_progress(epoch)
                with core_context.checkpoint.store_path({"steps_completed": epoch}) as (path, _):
                    model.save(path)
                if core_context.preempt.should_preempt():
                    return
            accuracy = model.accuracy()
            core_context.train.report_validation_metrics(steps_completed=epoch, metrics={"accuracy": accuracy})
            op.report_completed(accuracy)


if __name__ == "__main__":
    main()
