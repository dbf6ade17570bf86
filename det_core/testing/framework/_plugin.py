"""How the framework joins det."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from det_core.plugins import Registry
from det_core.specs import FrameworkSpec
from det_core.testing.framework._suite import FrameworkSuite, mro
from det_core.trial import Trial

_IMPORTED = """
import importlib, json, sys
import det_core.core, det_core.specs, det_core.trial
before = set(sys.modules)
importlib.import_module(sys.argv[1])
print(json.dumps(sorted(set(sys.modules) - before)))
"""


class Plugin(FrameworkSuite):
    """Lightly, and without standing in the way of others."""

    def test_the_plugin_is_light(self, spec: FrameworkSpec) -> None:
        """Its module is imported whenever det starts, also where the framework is not used or not even installed."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-c", _IMPORTED, self.plugin]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        imported = json.loads(ran.stdout)
        welcome = {*sys.stdlib_module_names, "det_core", self.plugin.partition(".")[0]}
        heavy = {module.partition(".")[0] for module in imported} - welcome
        assert not heavy, (
            f"{self.plugin} imports {heavy}; move what needs it to another module, and name that as target"
        )
        target = spec.target.partition(":")[0]
        assert target == self.plugin or target not in imported

    def test_the_plugin_claims_only_its_own_trials(self, registry: Registry) -> None:
        """Two plugins that claim one trial are an error, which the other plugin's users would meet."""
        assert registry.choose("det_choose_framework", mro=["model_def.Theirs", *mro(Trial)]) is None

    def test_the_lines_that_load_a_checkpoint_are_python(self, spec: FrameworkSpec) -> None:
        """``det checkpoint`` shows them with the path filled in."""
        if not spec.loading:
            pytest.skip("the spec has no `loading`")
        compile(spec.loading.format(path="/checkpoints/c"), "loading", "exec")
