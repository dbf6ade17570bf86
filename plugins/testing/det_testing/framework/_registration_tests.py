"""Tests of the framework's registration as a plugin."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from det_core.cli import main
from det_core.plugins import Registry
from det_core.specs import FrameworkSpec
from det_core.trial import Trial
from det_testing._plugin_suite import PluginRegistrationTests
from det_testing.framework._framework_suite import FrameworkSuite, list_base_classes


class FrameworkRegistrationTests(FrameworkSuite, PluginRegistrationTests):
    """Tests that the plugin module imports quickly and claims only its own trials."""

    def test_the_plugin_claims_only_its_own_trials(self, registry: Registry) -> None:
        """If two plugins claim one trial, the users of the other plugin get an error."""
        assert registry.choose("det_choose_framework", mro=["model_def.Theirs", *list_base_classes(Trial)]) is None

    def test_the_lines_that_load_a_checkpoint_are_python(self, spec: FrameworkSpec) -> None:
        """``det run`` shows these lines with the path filled in, which may contain spaces, quotes and backslashes."""
        if not spec.loading:
            pytest.skip("the spec has no `loading`")
        path = '/check points/it\'s a \\ "c"'
        nodes = ast.walk(ast.parse(spec.loading_lines(path)))
        texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        assert any(path in text for text in texts), '`loading` must contain {path} within double quotes: "{path}"'

    def test_the_starter_trains(self, spec: FrameworkSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """``det init`` is the first thing that a new user sees of a framework."""
        if not spec.starter:
            pytest.skip("the spec has no `starter`")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
        for arguments in (["init", "--framework", spec.name], ["config", "check", "const.yaml"]):
            assert main(arguments) == 0, arguments
        command = [sys.executable, "-m", "det_core.cli", "run", "const.yaml"]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "best checkpoint" in done.stdout
