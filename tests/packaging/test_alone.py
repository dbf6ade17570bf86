"""Each framework installs without the others, and trains its example there."""

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
class Framework:
    paths: tuple[str, ...]
    """What pip is given."""
    example: str
    absent: tuple[str, ...]
    """Modules of the others."""
    first: str = ""
    """What is installed before."""


FRAMEWORKS = [
    pytest.param(
        Framework(("plugins/torch",), "digits_pytorch", ("tensorflow", "det_tensorflow"), "torch==2.13.0"), id="torch"
    ),
    pytest.param(
        Framework(("plugins/tensorflow", "plugins/estimator[cpu]"), "digits_estimator", ("torch", "det_keras")),
        id="estimator",
        marks=TENSORFLOW,
    ),
    pytest.param(
        Framework(("plugins/tensorflow", "plugins/keras[cpu]"), "iris_keras", ("torch", "det_estimator")),
        id="keras",
        marks=TENSORFLOW,
    ),
]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_alone(framework: Framework, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"

    def run(*command: str | Path) -> str:
        environment = {**os.environ, "DET_HOME": str(tmp_path / "home")}
        environment.pop("PYTHONPATH", None)
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
        assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-5000:]
        return ran.stdout + ran.stderr

    if framework.first:
        run(programs / "pip", "install", "-q", framework.first)
    paths = [str(ROOT), *(f"{ROOT}/{path}" for path in framework.paths)]
    run(programs / "pip", "install", "-q", *paths, "-r", ROOT / "examples" / "requirements.txt")
    said = run(programs / "det", "run", ROOT / "examples" / framework.example / "const.yaml")
    assert "best" in said
    found = "import importlib.util as util, sys; print([name for name in sys.argv[1:] if util.find_spec(name)])"
    assert run(programs / "python", "-c", found, *framework.absent).strip() == "[]"
