"""Print the suites that a change may break: ``changed_suites.py [--since REVISION]``, which ``make check`` uses.

They are the suites of the distributions whose files differ from the revision, and of the distributions that import
those, dependencies first. A change of a test concerns only its own suite. Files that git does not know yet count.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from cycles import imported_names

CORE_PARTS = ("cli", "comm", "runner", "testing", "tracking")
"""Directories of ``tests/`` that are suites of their own."""
CORE_DIRECTORIES = ("tests", "docs", "examples", "benchmarks", "tools")
"""Directories whose files only the tests of det-core read."""


def changed_files(root: Path, since: str) -> list[str]:
    """Return the files that differ from the common ancestor with a revision, relative to the root.

    Raises:
        SystemExit: git does not know the revision.
    """

    def git(*arguments: str) -> list[str]:
        ran = subprocess.run(["git", *arguments], cwd=root, capture_output=True, encoding="utf-8", check=False)
        if ran.returncode:
            raise SystemExit(
                f"{ran.stderr.strip()}\nexpected a revision to compare with, such as: make check SINCE=main"
            )
        return ran.stdout.splitlines()

    (base,) = git("merge-base", since, "HEAD")
    return [*git("diff", "--name-only", base), *git("ls-files", "--others", "--exclude-standard")]


def read_imports(root: Path) -> dict[str, set[str]]:
    """Return for each distribution the others that its packages import. Their names are those of suites."""
    packages = {package: "core" if package.parent == root else package.parent.name for package in _packages(root)}
    suites = {package.name: suite for package, suite in packages.items()}
    found: dict[str, set[str]] = {suite: set() for suite in packages.values()}
    for package, suite in packages.items():
        for file in package.rglob("*.py"):
            roots = {name.partition(".")[0] for name in imported_names(f"{package.name}.x", file)}
            found[suite] |= {suites[name] for name in roots & suites.keys()} - {suite}
    return found


def _packages(root: Path) -> list[Path]:
    files = [*root.glob("det_core/__init__.py"), *sorted(root.glob("plugins/*/det*/__init__.py"))]
    return [file.parent for file in files]


def affected_suites(files: Iterable[str], imports: dict[str, set[str]]) -> list[str]:
    """Return the suites to run after the files have changed, dependencies first."""
    chosen = set()
    everything = {*imports, *CORE_PARTS}
    for file in files:
        match file.split("/"):
            case ["det_core", *_]:
                chosen |= everything
            case ["plugins", plugin, "tests", *_]:
                chosen |= {plugin} & imports.keys()
            case ["plugins", plugin, *_] if plugin in imports:
                chosen |= {plugin, *(suite for suite in imports if plugin in _dependencies(suite, imports))}
            case ["tests", part, test] if part in CORE_PARTS and test.startswith("test_"):
                chosen.add(part)
            case ["tests", *_, file] if not file.startswith("test_"):  # the parts share fixtures and helpers
                chosen |= {"core", *CORE_PARTS}
            case [directory, _, *_] if directory in CORE_DIRECTORIES:
                chosen.add("core")
            case [name] if name.endswith(".md"):
                chosen.add("core")
            case [".github" | ".ci", *_]:
                pass
            case _:
                chosen |= everything
    return sorted(chosen, key=lambda suite: (len(_dependencies(suite, imports)), suite))


def _dependencies(suite: str, imports: dict[str, set[str]]) -> set[str]:
    """Return what a suite imports, directly or not."""
    found: set[str] = set()
    waiting = {suite}
    while waiting:
        new = imports.get(waiting.pop(), set()) - found
        found |= new
        waiting |= new
    return found - {suite}


def main() -> None:
    """Print the names of the suites in one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", metavar="REVISION", default="@{upstream}", help="default: the upstream branch")
    since = parser.parse_args().since
    root = Path(__file__).resolve().parent.parent
    print(*affected_suites(changed_files(root, since), read_imports(root)))


if __name__ == "__main__":
    sys.exit(main())
