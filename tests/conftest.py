"""Fixtures of det-core's tests, which plugins/testing and plugins/cluster share."""

from __future__ import annotations

from tests.core_fixtures import _quick_scans, det_home, forked, installed, only_det_core  # noqa: F401
