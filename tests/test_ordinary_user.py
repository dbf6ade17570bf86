"""Suites whose tests of file permissions mean nothing for root also pass as an ordinary user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parent.parent
PERMISSIONS = [
    *(f"tests/core/test_{name}.py" for name in ("checkpoint", "context", "cluster_info")),
    "tests/comm/test_rendezvous.py",
    *(f"tests/launch/test_{name}.py" for name in ("local", "machine_slots", "processes", "guard")),
    "plugins/cluster/tests/test_mounted_storage.py",
]
"""Files with tests of permissions, and of what only root may do."""
SHOW = """
set -e
if [ "$CLOSED" ]; then
    mkdir -p "$HOME/python"
    mount --bind "$PYTHON" "$HOME/python"
    mount -t tmpfs -o mode=755 tmpfs "$CLOSED"
    mkdir -p "$PYTHON"
    mount --bind "$HOME/python" "$PYTHON"
fi
exec setpriv --reuid nobody --regid nogroup --clear-groups --bounding-set=-all "$@"
"""
"""Shell commands that make this Python readable for all users, in a new mount namespace, and switch to user nobody."""


@pytest.fixture
def home() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="det-nobody-", dir="/tmp"))
    shutil.chown(directory, "nobody", "nogroup")
    yield directory
    shutil.rmtree(directory)


@pytest.mark.parametrize(
    "paths",
    [pytest.param(PERMISSIONS, id="permissions"), pytest.param(["tests/launch"], id="launch", marks=pytest.mark.soak)],
)
def test_suites_pass_as_an_ordinary_user(paths: list[str], home: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can switch to user nobody, and other users run the suites as ordinary users anyway")
    python = Path(sys.base_prefix).resolve()
    closed = next((str(one) for one in reversed(python.parents) if not one.stat().st_mode & 1), "")
    environ = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    environ |= {"HOME": str(home), "TMPDIR": str(home), "CLOSED": closed, "PYTHON": str(python)}
    command = ["unshare", "--mount", "sh", "-c", SHOW, "sh"]
    if subprocess.run([*command, sys.executable, "-c", "import det_core"], cwd=ROOT, env=environ).returncode:
        pytest.skip("user nobody cannot read this checkout or its Python, not even in a new mount namespace")
    selected = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow and not campaign"]
    ran = subprocess.run([*command, *selected, *paths], cwd=ROOT, env=environ, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
