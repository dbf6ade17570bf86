"""Fixtures of det-core's tests, which plugins/testing and plugins/cluster share."""

from __future__ import annotations

from tests.core_fixtures import (  # noqa: F401
    _quick_scans,
    det_home,
    forked,
    installed,
    only_det_core,
    registry_of_installed,
)
