"""Tests of the backend's registration as a plugin."""

from __future__ import annotations

import sys

import pytest

from det_core.config import NoOptions
from det_core.errors import LaunchError
from det_core.plugins import Registry, measure_import
from det_core.specs import BackendSpec
from det_core.testing.backend._backend_suite import BackendSuite


class BackendRegistrationTests(BackendSuite):
    """Tests that the plugin module imports quickly, and that the backend claims only its own processes."""

    def test_the_plugin_is_light(self) -> None:
        """The plugin module is imported whenever det starts, even if the backend is not used or not installed."""
        welcome = {*sys.stdlib_module_names, "det_core", "pydantic", self.plugin.partition(".")[0]}
        heavy = {module.partition(".")[0] for module in measure_import(self.plugin).modules} - welcome
        assert not heavy, (
            f"{self.plugin} imports {heavy}; move the code that needs it to another module, and name that as target"
        )

    def test_a_process_of_somebody_else_has_no_rank(self, registry: Registry, spec: BackendSpec) -> None:
        model = registry.config_model(spec)
        backend = registry.load(spec)(model.model_validate(dict(self.options)) if model else NoOptions())
        with pytest.raises(LaunchError):
            backend.ranks()
