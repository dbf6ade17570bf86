"""Compliance suite for commands on two of det's own."""

from __future__ import annotations

import pytest

from det_core.testing.command import CommandCompliance

pytestmark = pytest.mark.integration


class TestPlugins(CommandCompliance):
    name = "plugins"
    arguments = ("list",)
    failing = ("show", "det-nothing")


class TestExperiment(CommandCompliance):
    name = "experiment"
    arguments = ("list",)
    failing = ("describe", "7")
