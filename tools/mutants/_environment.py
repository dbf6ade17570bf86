"""Copy of the working tree that mutants change, and a Python environment that imports it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / ".cache" / "mutants"


def distributions(tree: Path) -> list[Path]:
    """Return the directories of the distributions of a tree."""
    return [tree, *sorted(file.parent for file in (tree / "plugins").glob("*/pyproject.toml"))]


def copy_tree(target: Path) -> None:
    """Copy the files of the working tree that git does not ignore, and link caches that tests use."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    shutil.rmtree(target, ignore_errors=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    subprocess.run(["git", "init", "-q", str(target)], check=True)
    (target / ".cache").mkdir()
    for cache in ("mlflow", "axe", "wheels"):
        (target / ".cache" / cache).symlink_to(ROOT / ".cache" / cache)


def make_environment(tree: Path, target: Path) -> Path:
    """Make an environment with our libraries and the distributions of a tree, and return its interpreter."""
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(target)], check=True)
    ours = Path(sys.executable).parent
    shebangs = (str(ours / "python").encode(), str(target / "bin" / "python").encode())
    for script in ours.iterdir():
        copy = target / "bin" / script.name
        if script.is_file() and not copy.exists():
            copy.write_bytes(script.read_bytes().replace(*shebangs, 1))
            shutil.copymode(script, copy)
    site = next(target.glob("lib/python*/site-packages"))
    libraries = Path(sysconfig.get_path("purelib"))
    lines = [*map(str, distributions(tree)), str(libraries), str(Path(__file__).parent), "import _trace_process"]
    for file in sorted(libraries.glob("*.pth")):  # also what libraries run at start, but not the paths of this tree
        lines += [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("import ")]
    (site / "mutants.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return target / "bin" / "python"


def start_tests(
    python: Path, tree: Path, arguments: list[str], variables: dict[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """Start pytest in a tree, with its output in a file."""
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "VIRTUAL_ENV", "DET_SOAK")}
    environment |= {"OMP_NUM_THREADS": "1", "PATH": f"{python.parent}:{environment['PATH']}"} | variables
    with log.open("wb") as output:
        return subprocess.Popen(
            [str(python), "-m", "pytest", "-p", "_pytest_mutants", "-p", "no:cacheprovider", *arguments],
            cwd=tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
