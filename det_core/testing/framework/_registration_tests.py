"""Tests of the framework's registration as a plugin."""

from __future__ import annotations

import pytest

from det_core.plugins import Registry
from det_core.specs import FrameworkSpec
from det_core.testing._plugin_suite import PluginRegistrationTests
from det_core.testing.framework._framework_suite import FrameworkSuite, list_base_classes
from det_core.trial import Trial


class FrameworkRegistrationTests(FrameworkSuite, PluginRegistrationTests):
    """Tests that the plugin module imports quickly and claims only its own trials."""

    def test_the_plugin_claims_only_its_own_trials(self, registry: Registry) -> None:
        """If two plugins claim one trial, the users of the other plugin get an error."""
        assert registry.choose("det_choose_framework", mro=["model_def.Theirs", *list_base_classes(Trial)]) is None

    def test_the_lines_that_load_a_checkpoint_are_python(self, spec: FrameworkSpec) -> None:
        """``det checkpoint`` shows these lines with the path filled in."""
        if not spec.loading:
            pytest.skip("the spec has no `loading`")
        compile(spec.loading.format(path="/checkpoints/c"), "loading", "exec")
