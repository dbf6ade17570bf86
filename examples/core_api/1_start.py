"""Step 1: train inside core.init(). The run and its output are recorded."""

from __future__ import annotations

from digits import Digits

import det_core as det


def main() -> None:
    with det.core.init() as core_context:
        model = Digits(lr=0.1, seed=1)
        for epoch in range(1, 11):
            core_context.train.set_status(f"epoch {epoch} of 10")
            loss = model.train_epoch(epoch)
            print(f"epoch {epoch}: loss {loss:.4f}")
        print(f"accuracy {model.accuracy():.4f}")


if __name__ == "__main__":
    main()
