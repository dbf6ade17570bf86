"""Training in pieces, as if each piece ran in a separate process."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from det_torch import PyTorchTrial
from det_torch._adapter import PyTorchAdapter
from det_torch._random import seed_all


def never() -> bool:
    return False


class Life:
    """Training of one trial in pieces. After each piece, everything is lost except the checkpoint."""

    def __init__(self, trial_class: type[PyTorchTrial], make_context: Any, directory: Path, **keys: Any) -> None:
        self._trial_class, self._make_context, self._keys = trial_class, make_context, keys
        self._directory = directory
        self.rows: list[Any] = []
        self.validations: dict[int, Any] = {}

    def live(self, ends: Sequence[int], validate_at: Collection[int] = (8, 16)) -> Path:
        checkpoint = None
        for start, end in pairwise([0, *ends]):
            checkpoint = self._piece(checkpoint, start, end, [stop for stop in validate_at if start < stop <= end])
        assert checkpoint
        return checkpoint

    def _piece(self, checkpoint: Path | None, start: int, end: int, validate_at: list[int]) -> Path:
        context = self._make_context(**self._keys)
        seed_all(context.get_trial_seed())
        adapter = PyTorchAdapter(self._trial_class(context), context, first_batch=start)
        if checkpoint:
            seed_all(random.randrange(10**6))  # whatever happens before the checkpoint is read must not matter
            adapter.load(checkpoint, batches_trained=start)
        adapter.started()
        for stop in sorted({*validate_at, end}):
            rows = adapter.train(stop - start, never)
            adapter.reported(adapter.reduced(), rows)
            self.rows += rows
            start = stop
            if stop in validate_at:
                self.validations[stop] = adapter.validate(never)
        path = Path(tempfile.mkdtemp(dir=self._directory))
        adapter.snapshot()(path)
        adapter.close()
        return path
