"""Tests of what an observer registers, and of its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from det_core.errors import ConfigError
from det_core.interfaces.observer import Observer, received_events
from det_core.interfaces.secrets import Secret
from det_core.plugins import measure_import, misspelled_methods, plugin_registry
from det_core.specs import ObserverSpec
from det_testing.observer._observer_suite import ObserverSuite


class ObserverConfigTests(ObserverSuite):
    """Tests that a config can select the observer, and that others do not pay for it."""

    def test_the_plugin_module_is_quick_to_import(self, spec: ObserverSpec) -> None:
        """Every ``det`` command and every worker imports it. The client library belongs in the target's module."""
        reports = plugin_registry().reports
        plugin = next(report for report in reports if any(offered is spec for _, offered in report.provides))
        module = plugin.module.partition(":")[0]
        added = [name for name in measure_import(module).modules if name.partition(".")[0] != "det_core"]
        assert len(added) <= self.module_budget, f"{module} loads {len(added)} modules: {added}"

    def test_it_receives_events(self, target: type[Observer]) -> None:
        """A misspelled method is never called."""
        assert misspelled_methods(target) == []
        assert received_events(target), f"{target.__name__} overrides neither notify nor the method of an event"

    def test_options_can_be_recorded(self, options: Mapping[str, Any]) -> None:
        """The runner and the workers parse the recorded config again, with references instead of secrets."""
        config = self.parsed(options)
        assert self.parsed(config.dump()["observers"][self.name]).observers == config.observers

    def test_an_unknown_option_is_refused(self, options: Mapping[str, Any]) -> None:
        """A typing error in a config is found before anything starts."""
        with pytest.raises(ConfigError, match="no_such_option"):
            self.parsed({**options, "no_such_option": 1})

    def test_secret_options_are_secrets(self, options: Mapping[str, Any]) -> None:
        """The type `pydantic.SecretStr` keeps an option out of the tracking store and of error messages."""
        if not self.secrets:
            pytest.skip("the attribute `secrets` is not set")
        dumped = self.parsed(options).dump()["observers"][self.name]
        plain = [name for name in self.secrets if not isinstance(dumped[name], Secret)]
        assert plain == [], "declare them as pydantic.SecretStr"
