"""The system that det replaces, from PyPI, in an environment of its own under .cache/, to be timed beside det."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = ("determined==0.38.1", "setuptools<81")  # it imports pkg_resources
HOME = Path(__file__).resolve().parent.parent / ".cache" / "original"


def python() -> Path:
    """The interpreter of that environment, which the first use makes (a minute, with network).

    Raises:
        subprocess.CalledProcessError: pip could not install it; its output says why.
    """
    interpreter = HOME / "venv" / "bin" / "python"
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        complete = HOME / "complete"
        if not complete.exists() or complete.read_text() != repr(REQUIREMENTS):
            print(f"installing {REQUIREMENTS[0]} into {HOME} ...", file=sys.stderr)
            subprocess.run([sys.executable, "-m", "venv", "--clear", HOME / "venv"], check=True)
            subprocess.run([interpreter, "-m", "pip", "install", "-q", *REQUIREMENTS], check=True)
            complete.write_text(repr(REQUIREMENTS))
    return interpreter


if __name__ == "__main__":
    print(python())
