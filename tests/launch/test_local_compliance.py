"""The local launcher passes the compliance suite."""

from __future__ import annotations

from typing import ClassVar

import pytest

from det_core.testing.launcher import LauncherCompliance

pytestmark = pytest.mark.integration


class TestLocal(LauncherCompliance):
    name = "local"
    options: ClassVar = {"slots": 2}
    sends_secrets = False
