"""The suite for adapters detects defects, the example's adapter passes it, and docs/backends.md is up to date."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from det_torch.testing import AdapterCompliance

from det_core.testing import is_soak

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[4]
EXAMPLE, DOCUMENT = ROOT / "examples" / "backend_plugin", ROOT / "docs" / "backends.md"
BROKEN = "broken_backends"
_spec = importlib.util.spec_from_file_location(BROKEN, HERE / f"{BROKEN}.py")
assert _spec and _spec.loader
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
CAUGHT = list(_module.CAUGHT_BY.items())
CHOSEN = CAUGHT if is_soak() else CAUGHT[::3]

Run = Callable[..., str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a function that runs a module where the example and the broken backends are installed."""
    site = tmp_path_factory.mktemp("site")
    info = site / "det_broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: det-broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[det]\nbroken = {BROKEN}\n")

    def run(*arguments: str | Path, limit: float = 60) -> str:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (site, HERE)))}
        command = [sys.executable, "-m", *arguments]
        ran = subprocess.run(command, cwd=EXAMPLE, env=environment, capture_output=True, text=True, timeout=limit)
        return f"{ran.stdout}{ran.stderr}\nexit code {ran.returncode}"

    source = tmp_path_factory.mktemp("source")
    for path in EXAMPLE.iterdir():
        if path.is_file():
            (source / path.name).write_bytes(path.read_bytes())
    told = run("pip", "install", "-q", "--no-build-isolation", "--no-deps", "--target", site, source)
    assert told.endswith("exit code 0"), told
    return run


@pytest.fixture(scope="module")
def failed(run: Run) -> set[tuple[str, str]]:
    """Run the tests that should fail, and return those that did, as (backend, test)."""
    chosen = [f"{HERE / 'broken_adapters.py'}::Test{name}::test_{test}" for name, test in CHOSEN]
    told = run("pytest", "-c", ROOT / "pyproject.toml", "-rf", "--tb=no", "-p", "no:cacheprovider", *chosen, limit=550)
    assert told.endswith("exit code 1"), told
    return set(re.findall(r"^FAILED \S+::Test(\w+)::test_(.+?)(?: - .*)?$", told, re.MULTILINE))


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.campaign
@pytest.mark.parametrize(("backend", "test"), CHOSEN)
def test_a_defect_is_caught(failed: set[tuple[str, str]], backend: str, test: str) -> None:
    assert (backend, test) in failed


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_example_passes_the_suite(run: Run) -> None:
    marks = [] if is_soak() else ["-m", "not campaign"]
    told = run("pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *marks, "test_ring_torch.py", limit=550)
    # One test is skipped by `compresses`, another one if two hosts cannot be set up, which needs root.
    assert re.search(r"^\d+ passed, [12] skipped(, 1 deselected)? in ", told, re.MULTILINE), told


def test_the_document_lists_all_attributes_of_the_class() -> None:
    suite = [base for base in AdapterCompliance.__mro__ if base.__module__.startswith(("det_torch", "det_core"))]
    declared = {name for base in suite for name in vars(base).get("__annotations__", {})}
    listed = re.findall(r"^- `(\w+)`", DOCUMENT.read_text(), re.MULTILINE)
    assert set(listed) == declared | {"weights"}
