"""Step 2: report metrics. They are written to the tracking store, in the background, and to TensorBoard."""

from __future__ import annotations

from digits import Digits

import det_core as det


def main() -> None:
    searcher = {"metric": "accuracy", "smaller_is_better": False}  # the same as in 2_metrics.yaml
    with det.core.init(config={"searcher": searcher}) as core_context:
        model = Digits(lr=0.1, seed=1)
        for epoch in range(1, 11):
            loss = model.train_epoch(epoch)
            core_context.train.report_training_metrics(steps_completed=epoch, metrics={"loss": loss})
            core_context.train.report_validation_metrics(steps_completed=epoch, metrics={"accuracy": model.accuracy()})
            core_context.train.report_progress(epoch / 10)
        print(f"best accuracy so far: {core_context.train.get_experiment_best_validation()}")


if __name__ == "__main__":
    main()
