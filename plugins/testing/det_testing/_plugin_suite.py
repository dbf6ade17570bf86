"""Base classes of the suites for backends and frameworks."""

from __future__ import annotations

import sys
from typing import ClassVar

import importlib_metadata
import pytest

from det_core.plugins import Registry, measure_import
from det_core.specs import Spec
from det_testing.suite import ComplianceSuite


class PluginSuite(ComplianceSuite):
    """Attribute and fixture that describe the plugin module."""

    plugin: ClassVar[str] = ""
    """Module that the plugin's entry point in the group ``det`` names."""

    @pytest.fixture(scope="class")
    @classmethod
    def registry(cls) -> Registry:
        """Return a registry with only this plugin."""
        assert cls.plugin, f"{cls.__name__} must set plugin = 'my_package.plugin'"
        found = Registry([importlib_metadata.EntryPoint(cls.plugin, cls.plugin, "det")])
        assert [report.problem for report in found.reports] == [""]
        return found


class PluginRegistrationTests(PluginSuite):
    """Test that the plugin module imports quickly. Subclasses define the fixture ``spec``."""

    def test_the_plugin_is_light(self, spec: Spec) -> None:
        """The plugin module is imported whenever det starts, even if nobody uses it or its libraries are missing."""
        check_import(self.plugin, spec)


def check_import(plugin: str, spec: Spec) -> None:
    """Check that the plugin module ``plugin`` imports neither other libraries nor the implementation of ``spec``."""
    imported = measure_import(plugin).modules
    welcome = {*sys.stdlib_module_names, "det_cluster", "det_core", "pydantic", plugin.partition(".")[0]}
    heavy = {module.partition(".")[0] for module in imported} - welcome
    assert not heavy, (
        f"{plugin} imports {heavy}; move the code that needs it to another module, and name that as target"
    )
    target = spec.target.partition(":")[0]
    assert target == plugin or target not in imported, (
        f"{plugin} imports {target}, its own target, which is imported on first use; remove the import"
    )
