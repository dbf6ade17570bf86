"""Compliance suites: what a plugin promises, as tests that its author runs. Needs ``det-core[testing]``."""

from __future__ import annotations

import pytest

from det_core.testing._soak import campaign_seeds, is_soak

__all__ = ["campaign_seeds", "is_soak"]

pytest.register_assert_rewrite(
    "det_core.testing.storage", "det_core.testing.framework"
)  # so that a failed assertion shows the values
