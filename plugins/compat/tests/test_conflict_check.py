"""Conflicts with the distribution `determined` in the same environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import determined
import pytest

from det_core.package_commands import package_command
from det_core.plugins import find_overwritten_files, plugin_registry

pytestmark = pytest.mark.integration
PACKAGE = Path(determined.__file__).parent
REMOVE = package_command("uninstall", "determined")
OTHERS = {report.name for report in plugin_registry().reports} - {"det-core", "det-compat"}
"""Other plugins, disabled because importing their frameworks takes time."""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory of packages that contains det-compat, as installed from a wheel."""
    shutil.copytree(PACKAGE, tmp_path / "determined", ignore=shutil.ignore_patterns("__pycache__"))
    record(tmp_path, "det_compat-0.1.0", "determined/__init__.py", "determined/plugin.py", "determined/_finder.py")
    (tmp_path / "det_compat-0.1.0.dist-info" / "entry_points.txt").write_text("[det]\ncompat = determined.plugin\n")
    return tmp_path


def record(site: Path, stem: str, *files: str) -> None:
    info = site / f"{stem}.dist-info"
    info.mkdir()
    name, version = stem.split("-")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(f"{file},sha256=abc,1\n" for file in files))


def python(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site), "DET_DISABLE_PLUGINS": ",".join(OTHERS)}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=site, capture_output=True, text=True, timeout=60
    )


def check(site: Path) -> str:
    ran = python(site, "-m", "det_core.cli", "plugins", "check")
    assert ran.returncode == 1, ran.stdout
    return ran.stdout


def test_the_conflict_is_reported_if_det_compat_was_installed_last(site: Path) -> None:
    record(site, "determined-0.38.1", "determined/__init__.py", "determined/core/__init__.py", "../../../bin/det")
    ran = python(site, "-c", "import determined")
    assert "ImportError: determined 0.38.1 and det-compat are both installed in" in ran.stderr
    assert f"type: {REMOVE}; {package_command('reinstall', 'det-core', 'det-compat')}" in ran.stderr


def test_the_conflict_is_reported_if_determined_was_installed_last(site: Path) -> None:
    (site / "determined" / "__init__.py").write_text("")
    record(site, "determined-0.38.1", "determined/__init__.py")
    assert "det-compat 0.1.0 (determined.plugin) is broken: ImportError: determined 0.38.1 and" in check(site)


def test_a_conflict_of_the_command_det_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both distributions have a command ``det``, whether det-compat is installed or not."""
    record(tmp_path, "det_core-0.1.0", "../../../bin/det", "det_core/__init__.py")
    (tmp_path / "det_core-0.1.0.dist-info" / "entry_points.txt").write_text("[det]\ncore = det_core.plugins.builtin\n")
    record(tmp_path, "determined-0.38.1", "determined/__init__.py", "../../../bin/det")
    monkeypatch.syspath_prepend(tmp_path)
    assert (
        "det-core 0.1.0 and determined 0.38.1 overwrite each other's files, such as ../../../bin/det (1 in all); type: "
        f"{REMOVE}; {package_command('reinstall', 'det-core')}"
    ) in list(find_overwritten_files(["det-core"]))


def test_a_conflict_with_determined_common_is_reported(site: Path) -> None:
    record(site, "determined_common-0.12.13", "determined_common/__init__.py")
    ran = python(site, "-c", "import determined")
    assert "ImportError: determined_common 0.12.13 and det-compat are both installed" in ran.stderr
    assert "pip uninstall determined-common" in ran.stderr


def test_a_distribution_without_these_files_is_no_conflict(site: Path) -> None:
    record(site, "determined-0.38.1", "determined-0.38.1.dist-info/METADATA")
    ran = python(site, "-c", "import determined.core; print(determined.core.init.__module__)")
    assert ran.stdout == "det_core.core._context\n", ran.stderr
