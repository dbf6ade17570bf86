"""What the wheels and sdists contain, and how they are installed by name with each Python that det supports."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from .conftest import ROOT, Environment

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(2400)]

DIRECTORIES = [ROOT, *sorted(project.parent for project in ROOT.glob("plugins/*/pyproject.toml"))]
PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
BUILD = """
import os, sys
from hatchling.build import build_sdist, build_wheel

_, target, *directories = sys.argv
for directory in directories:
    os.chdir(directory)
    build_sdist(target)
    build_wheel(target)
"""


def test_archives_are_reproducible_and_contain_the_packages_only(
    archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wheels of ``make dist`` are built from the sdists. Those that are built from the tree have the same bytes."""
    python = ROOT / ".cache" / "packaging" / "bin" / "python"
    seconds = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", seconds.stdout.strip())
    subprocess.run([python, "-c", BUILD, tmp_path, *DIRECTORIES], check=True, capture_output=True)
    built = {path.name: path.read_bytes() for path in archives.iterdir()}
    assert {path.name: path.read_bytes() for path in tmp_path.glob("det_*")} == built
    assert len(built) == 2 * len(DIRECTORIES)
    for wheel in archives.glob("*.whl"):
        files = [PurePosixPath(name) for name in zipfile.ZipFile(wheel).namelist()]
        packages = {file.parts[0] for file in files if not file.parts[0].endswith(".dist-info")}
        assert all(PurePosixPath(package, "py.typed") in files for package in packages), wheel
        assert any(file.match("*.dist-info/licenses/LICENSE") for file in files), wheel
        (sdist,) = archives.glob(f"{wheel.name.split('-')[0]}-*.tar.gz")
        sources = {PurePosixPath(name).relative_to(sdist.name.removesuffix(".tar.gz")) for name in names(sdist)}
        others = {str(file) for file in sources if file.parts[0] not in packages}
        assert others == {"CHANGELOG.md", "LICENSE", "README.md", "PKG-INFO", "pyproject.toml", ".gitignore"}, sdist
        assert not [file for file in sources | set(files) if "__pycache__" in file.parts]


def names(sdist: Path) -> list[str]:
    with tarfile.open(sdist) as archive:
        return archive.getnames()


@pytest.mark.soak
@pytest.mark.parametrize("version", PYTHONS)
def test_each_python_installs_by_name_and_trains(
    version: str, new_environment: Callable[..., Environment], monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch is a download of gigabytes except for the Python whose wheel is at hand."""
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")  # or it would keep the gigabytes
    environment = new_environment(find_python(version))
    environment.install("det-core", "det-torch", "scikit-learn>=1.3", "torch==2.13.0")
    config = ROOT / "examples" / "digits_pytorch" / "const.yaml"
    assert "best" in environment.run(environment.programs / "det", "run", config)
    assert f"Python {version}." in environment.run(environment.programs / "python", "--version")
    environment.run(environment.programs / "det", "plugins", "check")


def find_python(version: str) -> str:
    """Return an interpreter of a version: one of pyenv's, or the first on the PATH."""
    for path in Path.home().glob(f".pyenv/versions/{version}.*/bin/python"):
        return str(path)
    if found := shutil.which(f"python{version}"):
        return found
    pytest.skip(f"Python {version} is not installed")
