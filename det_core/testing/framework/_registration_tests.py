"""Tests of the framework's registration as a plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from det_core.plugins import Registry
from det_core.specs import FrameworkSpec
from det_core.testing.framework._framework_suite import FrameworkSuite, list_base_classes
from det_core.trial import Trial

_IMPORTED = """
import importlib, json, sys
import det_core.config, det_core.core, det_core.specs, det_core.trial
from det_core.plugins import hookimpl
before = set(sys.modules)
importlib.import_module(sys.argv[1])
print(json.dumps(sorted(set(sys.modules) - before)))
"""


class FrameworkRegistrationTests(FrameworkSuite):
    """Tests that the plugin module imports quickly and claims only its own trials."""

    def test_the_plugin_is_light(self, spec: FrameworkSpec) -> None:
        """The plugin module is imported whenever det starts, even if the framework is not used or not installed."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-c", _IMPORTED, self.plugin]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        imported = json.loads(ran.stdout)
        welcome = {*sys.stdlib_module_names, "det_core", self.plugin.partition(".")[0]}
        heavy = {module.partition(".")[0] for module in imported} - welcome
        assert not heavy, (
            f"{self.plugin} imports {heavy}; move the code that needs it to another module, and name that as target"
        )
        target = spec.target.partition(":")[0]
        assert target == self.plugin or target not in imported

    def test_the_plugin_claims_only_its_own_trials(self, registry: Registry) -> None:
        """If two plugins claim one trial, the users of the other plugin get an error."""
        assert registry.choose("det_choose_framework", mro=["model_def.Theirs", *list_base_classes(Trial)]) is None

    def test_the_lines_that_load_a_checkpoint_are_python(self, spec: FrameworkSpec) -> None:
        """``det checkpoint`` shows these lines with the path filled in."""
        if not spec.loading:
            pytest.skip("the spec has no `loading`")
        compile(spec.loading.format(path="/checkpoints/c"), "loading", "exec")
