"""Tests of the backend's registration as a plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from det_core.config import NoOptions
from det_core.errors import LaunchError
from det_core.plugins import Registry
from det_core.specs import BackendSpec
from det_core.testing.backend._backend_suite import BackendSuite

_IMPORTED = """
import importlib, json, sys
import det_core.config, det_core.core, det_core.specs, det_core.interfaces.backend
from det_core.plugins import hookimpl
before = set(sys.modules)
importlib.import_module(sys.argv[1])
print(json.dumps(sorted(set(sys.modules) - before)))
"""


class BackendRegistrationTests(BackendSuite):
    """Tests that the plugin module imports quickly, and that the backend claims only its own processes."""

    def test_the_plugin_is_light(self) -> None:
        """The plugin module is imported whenever det starts, even if the backend is not used or not installed."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-c", _IMPORTED, self.plugin]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        welcome = {*sys.stdlib_module_names, "det_core", "pydantic", self.plugin.partition(".")[0]}
        heavy = {module.partition(".")[0] for module in json.loads(ran.stdout)} - welcome
        assert not heavy, (
            f"{self.plugin} imports {heavy}; move the code that needs it to another module, and name that as target"
        )

    def test_a_process_of_somebody_else_has_no_rank(self, registry: Registry, spec: BackendSpec) -> None:
        model = registry.config_model(spec)
        backend = registry.load(spec)(model.model_validate(dict(self.options)) if model else NoOptions())
        with pytest.raises(LaunchError):
            backend.ranks()
