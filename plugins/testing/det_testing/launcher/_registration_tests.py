"""Tests of the launcher's registration as a plugin, and of its options."""

from __future__ import annotations

import time

import pytest

from det_core.config import parse_config
from det_core.errors import ConfigError
from det_core.interfaces.launcher import Launcher
from det_core.launch.launchers import open_launcher
from det_core.plugins import plugin_registry
from det_core.specs import LauncherSpec
from det_testing._plugin_suite import check_import
from det_testing.launcher.launcher_suite import LauncherSuite


class LauncherRegistrationTests(LauncherSuite):
    """Tests that the plugin is light, and that wrong options are found when a config is read."""

    def test_the_plugin_is_light(self, spec: LauncherSpec) -> None:
        """The plugin module is imported whenever det starts. The client of an engine belongs to the target."""
        reports = plugin_registry().reports
        module = next(report.module for report in reports if any(offered is spec for _, offered in report.provides))
        check_import(module, spec)

    def test_wrong_options_are_refused_with_the_config(self) -> None:
        """Otherwise, a typing error is found hours later, when the engine starts the trial."""
        config = self.experiment_config()
        config["launcher"]["no_such_option"] = 1
        with pytest.raises(ConfigError, match="no_such_option"):
            parse_config(config)

    def test_options_can_be_stored(self, launcher: Launcher) -> None:
        """The runner reads the config from the tracking store."""
        experiment = parse_config(self.experiment_config())
        assert parse_config(experiment.dump()) == experiment
        assert type(open_launcher(parse_config(experiment.dump()))) is type(launcher)

    def test_no_key_is_ignored(self) -> None:
        """Users read in a notice which keys have no effect. Those that the launcher claims have one."""
        notices = parse_config(self.experiment_config()).notices
        assert not [notice for notice in notices if "are ignored" in notice], notices

    def test_the_launcher_describes_its_slots(self, launcher: Launcher) -> None:
        """The runner asks for the device before each launch, and for the number of slots to start so many trials."""
        began = time.monotonic()
        assert launcher.device() in ("cpu", "cuda")
        assert launcher.slots is None or (type(launcher.slots) is int and launcher.slots >= self.slots >= 2)
        assert isinstance(launcher, Launcher)
        assert time.monotonic() - began < 5
