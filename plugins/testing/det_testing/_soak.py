"""Seeds of random campaigns, a few per test run and all of them in a soak."""

from __future__ import annotations

import os
import re

import pytest

VARIABLE = "DET_SOAK"
"""Environment variable that selects the seeds."""


def is_soak() -> bool:
    """Return whether ``DET_SOAK`` asks for the campaigns' full length."""
    return bool(os.environ.get(VARIABLE))


def campaign_seeds(few: int, many: int) -> range:
    """Return the seeds that a campaign runs.

    Args:
        few: the number of seeds without ``DET_SOAK``.
        many: the number of seeds with ``DET_SOAK=1``. ``DET_SOAK=40:100`` chooses the seeds 40 to 99 of them, so that
            an interrupted campaign can be resumed and a failed seed be repeated.

    Raises:
        pytest.UsageError: ``DET_SOAK`` has another form.
    """
    value = os.environ.get(VARIABLE)
    if not value:
        return range(few)
    if value == "1":
        return range(many)
    if part := re.fullmatch(r"(\d+):(\d+)", value):
        first, end = map(int, part.groups())
        if first < end:
            return range(many)[first:end]
    raise pytest.UsageError(
        f"expected {VARIABLE}=1 for all seeds, or {VARIABLE}=FIRST:END (such as 40:100) for a part, got {value!r}; "
        f"unset it to run a few"
    )
