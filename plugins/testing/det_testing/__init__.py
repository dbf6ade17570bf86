"""Compliance suites that plugin authors run to test their plugins. It is not a plugin and registers nothing."""

from __future__ import annotations

import pytest

from det_testing._soak import campaign_seeds, is_soak

__all__ = ["campaign_seeds", "is_soak"]
__version__ = "0.1.0"

pytest.register_assert_rewrite(
    "det_testing.storage",
    "det_testing.framework",
    "det_testing.search_method",
    "det_testing.command",
    "det_testing.launcher",
    "det_testing.observer",
    "det_testing.backend",
)  # shows the values of failed assertions
