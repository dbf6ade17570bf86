"""Fixtures of det-core's tests, which give every test its own DET_HOME."""

from __future__ import annotations

from tests.core_fixtures import _quick_scans, det_home, forked, installed, only_det_core  # noqa: F401
