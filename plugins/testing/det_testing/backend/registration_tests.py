"""Tests of the backend's registration as a plugin."""

from __future__ import annotations

import pytest

from det_core.config import NoOptions
from det_core.errors import LaunchError
from det_core.plugins import Registry
from det_core.specs import BackendSpec
from det_testing._plugin_suite import PluginRegistrationTests
from det_testing.backend._backend_suite import BackendSuite


class BackendRegistrationTests(BackendSuite, PluginRegistrationTests):
    """Tests that the plugin module imports quickly, and that the backend claims only its own processes."""

    def test_a_process_of_somebody_else_has_no_rank(self, registry: Registry, spec: BackendSpec) -> None:
        model = registry.config_model(spec)
        backend = registry.load(spec)(model.model_validate(dict(self.options)) if model else NoOptions())
        with pytest.raises(LaunchError):
            backend.ranks()
