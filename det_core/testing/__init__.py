"""Compliance suites that plugin authors run to test their plugins. They need ``det-core[testing]``."""

from __future__ import annotations

import pytest

from det_core.testing._soak import campaign_seeds, is_soak

__all__ = ["campaign_seeds", "is_soak"]

pytest.register_assert_rewrite(
    "det_core.testing.storage",
    "det_core.testing.framework",
    "det_core.testing.search_method",
    "det_core.testing.command",
    "det_core.testing.launcher",
    "det_core.testing.observer",
    "det_core.testing.backend",
)  # shows the values of failed assertions
