"""Extras of det-core, without which everything else works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from det_core.extras import EXTRAS, explain_missing_extra, has_extra
from det_core.package_commands import package_command

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


@pytest.mark.parametrize("name", EXTRAS)
def test_the_project_offers_the_extra(name: str) -> None:
    assert any(line.startswith((f'{name} = ["{EXTRAS[name].library}',)) for line in PROJECT.read_text().splitlines())


def test_a_missing_library_is_noticed_and_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert not has_extra("plot")
    assert explain_missing_extra("plot") == (
        "plots of learning curves need matplotlib, which is not installed; "
        f"type: {package_command('install', 'det-core[plot]')}"
    )


@pytest.mark.integration
def test_all_modules_except_those_of_live_displays_import_without_extras() -> None:
    code = f"""if True:
        import importlib, pkgutil, sys
        sys.modules.update(dict.fromkeys({[extra.module for extra in EXTRAS.values()]}))
        import det_core
        for module in pkgutil.walk_packages(det_core.__path__, "det_core."):
            if not module.name.startswith(("det_core.testing", "det_core.cli.render.live_", "det_core.cli.__main__")):
                importlib.import_module(module.name)
    """
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
