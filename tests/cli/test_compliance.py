"""Compliance suite for commands on one of det's own. The others are tested in the process of their tests."""

from __future__ import annotations

import pytest
from det_testing.command import CommandCompliance

pytestmark = pytest.mark.integration


class TestPlugins(CommandCompliance):
    name = "plugins"
    arguments = ("list",)
    failing = ("show", "det-nothing")
