"""Virtual environments under .cache/ with the packages that det is compared with, installed at their first use."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = {
    "original": ("determined==0.38.1", "setuptools<81"),  # it imports pkg_resources
    "ray": ("torch==2.13.0", "scikit-learn>=1.3", "ray[tune]>=2.40,<3"),
    "search": ("-e", str(ROOT), "-e", str(ROOT / "plugins" / "optuna"), "onnxruntime>=1.20,<2", "optuna>=5,<6"),
    "stores": ("awscli>=1.40,<2", "obstore>=0.8"),
    "trainers": (
        "torch==2.13.0",
        "determined==0.38.1",
        "setuptools<81",
        "lightning>=2.5,<3",
        "pytorch-ignite>=0.5,<0.6",
        "accelerate>=1,<2",
        "tensorboard>=2.18",
    ),
}
HOME = ROOT / ".cache"


def programs(name: str) -> Path:
    """Return the directory of an environment's programs, such as ``python``. Install the environment if it is missing.

    Args:
        name: a key of `REQUIREMENTS`.

    Raises:
        subprocess.CalledProcessError: the installation failed. The output of pip says why.
    """
    home, wanted = HOME / name, REQUIREMENTS[name]
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        complete = home / "complete"
        if not complete.exists() or complete.read_text() != repr(wanted):
            print(f"installing {', '.join(wanted)} into {home} ...", file=sys.stderr)
            subprocess.run([sys.executable, "-m", "venv", "--clear", home / "venv"], check=True)
            subprocess.run([home / "venv" / "bin" / "python", "-m", "pip", "install", "-q", *wanted], check=True)
            complete.write_text(repr(wanted))
    return home / "venv" / "bin"


def original() -> Path:
    """Return the Python interpreter that can import the system that det replaces."""
    return programs("original") / "python"
