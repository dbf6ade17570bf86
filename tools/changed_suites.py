"""Print the suites that a change may break: ``changed_suites.py [--since REVISION]``, which ``make check`` uses.

They are the suites of the distributions whose files differ from the revision, and of the distributions that import
those, dependencies first. A change of a test concerns only its own suite, and one of an example, a page or a helper of
tests those whose tests name it. Files that git does not know yet count.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from cycles import imported_names

CORE_PARTS = ("cli", "comm", "runner", "tracking")
"""Directories of ``tests/`` that are suites of their own."""
CORE_DIRECTORIES = ("tests", "docs", "examples", "benchmarks", "tools")
"""Directories whose files the tests of det-core read, and those of plugins that name them."""


def changed_files(root: Path, since: str) -> list[str]:
    """Return the files that differ from the common ancestor with a revision, relative to the root.

    A file that was moved counts at both places.

    Raises:
        SystemExit: git does not know the revision.
    """

    def git(*arguments: str) -> str:
        ran = subprocess.run(["git", *arguments], cwd=root, capture_output=True, encoding="utf-8", check=False)
        if ran.returncode:
            raise SystemExit(
                f"{ran.stderr.strip()}\nexpected a revision to compare with, such as: make check SINCE=main"
            )
        return ran.stdout

    base = git("merge-base", since, "HEAD").strip()
    different = git("diff", "--name-only", "--no-renames", "-z", base)
    return (different + git("ls-files", "--others", "--exclude-standard", "-z")).split("\0")[:-1]


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


def read_tests(root: Path) -> dict[str, str]:
    """Return the code of the tests of each plugin."""
    return {
        tests.parent.name: "".join(file.read_text(encoding="utf-8") for file in sorted(tests.rglob("*.py")))
        for tests in root.glob("plugins/*/tests")
    }


def _packages(root: Path) -> list[Path]:
    files = [*root.glob("det_core/__init__.py"), *sorted(root.glob("plugins/*/det*/__init__.py"))]
    return [file.parent for file in files]


def affected_suites(files: Iterable[str], imports: dict[str, set[str]], tests: Mapping[str, str]) -> list[str]:
    """Return the suites to run after the files have changed, dependencies first.

    Args:
        files: paths relative to the root.
        imports: what `read_imports` returns.
        tests: what `read_tests` returns.
    """
    chosen: set[str] = set()
    everything = {*imports, *CORE_PARTS}
    for file in files:
        if name := _name_in_tests(file):
            chosen |= {suite for suite, code in tests.items() if name in code}
        match file.split("/"):
            case ["det_core", *_] | ["plugins", "testing", "det_testing", *_]:  # which all tests use
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


def _name_in_tests(file: str) -> str | None:
    """Return how the tests of plugins name a file that belongs to no distribution, or None if they cannot."""
    match file.split("/"):
        case ["examples", example, *_]:
            return example
        case ["docs", *_, page]:
            return page
        case ["tests", *_]:
            return file.removesuffix(".py").replace("/", ".")
    return None


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
    print(*affected_suites(changed_files(root, since), read_imports(root), read_tests(root)))


if __name__ == "__main__":
    sys.exit(main())
