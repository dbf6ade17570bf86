"""det-core is small, torch and TensorFlow install without each other, and each framework trains its example there."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
TENSORFLOW = pytest.mark.skipif(sys.version_info >= (3, 12), reason="TensorFlow 2.15 needs Python 3.10 or 3.11")


@dataclass(frozen=True)
class Step:
    """Something to install where the steps before it were, and what holds then."""

    paths: tuple[str, ...]
    """What pip is given."""
    example: str
    """What trains."""
    absent: tuple[str, ...]
    """Modules that are not there."""
    first: str = ""
    """What is installed before."""
    megabytes: int = 0
    """What ``first`` adds to a fresh environment at most, with its requirements."""


STEPS = [
    pytest.param(
        [
            Step(
                ("plugins/torch", "plugins/compat"),
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
                ("plugins/tensorflow", "plugins/estimator[cpu]"),
                "digits_estimator",
                ("torch", "det_keras"),
                first=str(ROOT),
                megabytes=60,  # only ever lowered
            ),
            Step(("plugins/keras[cpu]",), "iris_keras", ("torch", "det_torch")),
        ],
        id="tensorflow",
        marks=TENSORFLOW,
    ),
]


def size(directory: Path) -> int:
    return sum(path.lstat().st_size for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


@pytest.mark.parametrize("steps", STEPS)
def test_alone(steps: list[Step], tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"

    def run(*command: str | Path) -> str:
        environment = {**os.environ, "DET_HOME": str(tmp_path / "home")}
        environment.pop("PYTHONPATH", None)
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
        assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-5000:]
        return ran.stdout + ran.stderr

    found = "import importlib.util as util, sys; print([name for name in sys.argv[1:] if util.find_spec(name)])"
    for step in steps:
        if step.first:
            before = size(tmp_path / "venv")
            run(programs / "pip", "install", "-q", step.first)
            if step.megabytes:
                assert size(tmp_path / "venv") - before <= step.megabytes * 1e6
        paths = [str(ROOT), *(f"{ROOT}/{path}" for path in step.paths)]
        run(programs / "pip", "install", "-q", *paths, "-r", ROOT / "examples" / "requirements.txt")
        assert "best" in run(programs / "det", "run", ROOT / "examples" / step.example / "const.yaml")
        assert run(programs / "python", "-c", found, *step.absent).strip() == "[]"
        run(programs / "det", "plugins", "check")
    assert "det-tried" in run(programs / "det", "plugins", "new", "command", "tried")  # its templates are in the wheel
