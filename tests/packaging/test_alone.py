"""det-core is small, torch and TensorFlow install without each other, and each framework trains its example there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import ROOT, Environment

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

EXAMPLES = ROOT / "examples" / "requirements.txt"
TENSORFLOW = pytest.mark.skipif(sys.version_info >= (3, 12), reason="TensorFlow 2.15 needs Python 3.10 or 3.11")


@dataclass(frozen=True)
class Step:
    """Distributions to install by name beside those of the steps before, and what holds then."""

    names: tuple[str, ...]
    """Arguments of pip."""
    example: str
    """Directory of the example that trains."""
    absent: tuple[str, ...]
    """Modules that are not there."""
    first: str = ""
    """Distribution to install before the others."""
    megabytes: int = 0
    """Maximum that ``first`` adds to a fresh environment, with its requirements, without compiled modules."""


STEPS = [
    pytest.param(
        [
            Step(
                ("det-core", "det-torch", "det-compat"),
                "digits_pytorch",
                ("tensorflow", "det_tensorflow", "det_torch_distributed"),
                first="torch==2.13.0",
            ),
        ],
        id="torch",
    ),
    pytest.param(
        [
            Step(
                ("det-core", "det-tensorflow", "det-estimator[cpu]"),
                "digits_estimator",
                ("torch", "det_keras"),
                first="det-core",
                megabytes=36,  # only ever lowered
            ),
            Step(("det-keras[cpu]",), "iris_keras", ("torch", "det_torch")),
        ],
        id="tensorflow",
        marks=TENSORFLOW,
    ),
]


def size(directory: Path) -> int:
    return sum(path.lstat().st_size for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


@pytest.mark.parametrize("steps", STEPS)
def test_alone(steps: list[Step], new_environment: Callable[[], Environment]) -> None:
    environment = new_environment()
    run, programs = environment.run, environment.programs
    found = "import importlib.util as util, sys; print([name for name in sys.argv[1:] if util.find_spec(name)])"
    for step in steps:
        if step.first:
            before = size(environment.directory)
            environment.install(step.first)
            if step.megabytes:
                assert size(environment.directory) - before <= step.megabytes * 1e6
        environment.install(*step.names, *EXAMPLES.read_text().split())
        config = ROOT / "examples" / step.example / "const.yaml"
        assert "best" in run(programs / "det", "run", config, "--config", "searcher.max_length={epochs: 1}")
        assert run(programs / "python", "-c", found, *step.absent).strip() == "[]"
        run(programs / "det", "plugins", "check")
    assert "det-tried" in run(programs / "det", "plugins", "new", "command", "tried")  # its templates are in the wheel


def test_a_new_launcher_installs_what_it_is_made_of_and_tested_with(
    new_environment: Callable[[], Environment], tmp_path: Path
) -> None:
    environment = new_environment()
    run, programs = environment.run, environment.programs
    environment.install("det-core")
    without = (
        ("-m det_core.launch.agent_program", "det-cluster"),
        ("-m det_core.testing.launcher", "'det-core[testing]'"),
    )
    for arguments, name in without:
        assert f"install {name}" in run("sh", "-c", f"! {programs / 'python'} {arguments}")
    environment.install("det-core[testing]", "det-testing", "det-cluster", "det-slurm")
    run(programs / "det", "plugins", "new", "launcher", "tried", "tried")
    run(programs / "pip", "install", "-q", "./tried[test]")
    run(programs / "det", "plugins", "check")
    assert "1 passed" in run(programs / "pytest", "-q", "tried", "-k", "plugin_is_light")
