"""The suites are also found under their old names, those of `det_core.testing`."""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module

import det_testing
import pytest

import det_core.testing
from det_core.package_commands import package_command


def test_each_public_module_is_the_same_under_both_names() -> None:
    names = [module.name for module in pkgutil.walk_packages(det_testing.__path__, "det_testing.")]
    public = [name for name in names if "._" not in name]
    assert {"det_testing.proxy", "det_testing.launcher", "det_testing.framework.trial_harness"} < {*public}
    for name in public:
        assert import_module(f"det_core.testing{name.removeprefix('det_testing')}") is import_module(name)
    assert [getattr(det_core.testing, name) for name in det_testing.__all__] == [
        getattr(det_testing, name) for name in det_testing.__all__
    ]


def test_an_unknown_module_is_an_error() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"det_testing\.nothing"):
        import_module("det_core.testing.nothing")


def test_without_det_testing_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.delitem(sys.modules, "det_core.testing")
    monkeypatch.setitem(sys.modules, "det_testing", None)
    with pytest.raises(ModuleNotFoundError) as caught:
        import_module("det_core.testing")
    command = package_command("install", "det-core[testing]")
    assert str(caught.value) == f"det_core.testing is det_testing now, which is not installed; type: {command}"
