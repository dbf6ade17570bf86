"""Record the public names and signatures of all distributions, or check them: ``public_api.py [--check]``.

``docs/public_api/PACKAGE.txt`` lists each public module of a package with its public names: functions with their
signatures, classes with bases, methods and attributes, and constants. docs/contract.md says which modules are public
and how they may change. ``--check`` prints the differences and exits with 1 if there are some. Without it, the files
are written.
"""

from __future__ import annotations

import ast
import difflib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "docs" / "public_api"
PACKAGES: dict[str, tuple[str, ...]] = {
    "det_core": (
        "",
        "config",
        "core",
        "errors",
        "events",
        "experimental",
        "experimental.client",
        "hookspecs",
        "interfaces.backend",
        "interfaces.framework",
        "interfaces.launcher",
        "interfaces.model_registry",
        "interfaces.object_store",
        "interfaces.search_method",
        "interfaces.secrets",
        "interfaces.storage",
        "interfaces.tracking",
        "launch.backends",
        "launch.network",
        "launch.standalone",
        "lazy",
        "plugins",
        "scratch",
        "specs",
        "storage",
        "testing",
        "testing.backend",
        "testing.comparison",
        "testing.framework",
        "testing.job_factory",
        "testing.proxy",
        "testing.requirements",
        "testing.runs",
        "testing.storage",
        "testing.suite",
        "testing.trial_job",
        "tracking",
        "trial",
        "trial.metric_averages",
        "trial.random_generators",
        "trial.tensorboard_upload",
        "trial.trial_description",
    ),
    "det_torch": ("", "backend", "process_group", "samplers", "testing", "torchrun"),
    "det_tensorflow": ("backend", "checkpoint_errors", "context", "devices", "optimizer", "testing"),
    "det_estimator": ("",),
    "det_keras": ("", "callbacks"),
}
"""Public modules of each package, without the package's name. Backends and stores are used by their names only."""

_KINDS = ("abstractmethod", "classmethod", "staticmethod", "property")


def public_names(module: Any) -> list[str]:
    """Return the names that a module exports: those in ``__all__``, or else its own and those imported as themselves.

    ``import x as x`` is how stub files mark a re-export (PEP 484), and how packages repeat names that they import on
    first use.
    """
    if module.exports and "_EXPORTS" not in module.members:
        return sorted(str(name) for name in module.exports)
    tree = ast.parse(Path(str(module.filepath)).read_text())
    aliases = [alias for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
    names = {alias.name for alias in aliases if alias.asname == alias.name}
    names |= {name for name, member in module.members.items() if not member.is_alias and not member.is_module}
    return sorted(name for name in names if not name.startswith("_") and name != "TYPE_CHECKING")


def describe(name: str, member: Any, indent: str = "") -> Iterator[str]:
    """Yield the lines that describe a public object."""
    if member.is_function:
        yield f"{indent}{label(member)}{member.signature(return_type=True, name=name)}"
    elif member.is_class:
        bases = ", ".join(str(base) for base in member.bases)
        yield f"{indent}class {name}({bases})" if bases else f"{indent}class {name}"
        for inner, part in sorted(member.all_members.items()):
            if not inner.startswith(("_", "test_")) or inner == "__init__":
                yield from describe(inner, part, indent + "    ")
    elif member.is_attribute:
        annotation = f": {member.annotation}" if member.annotation else ""
        yield f"{indent}{label(member)}{name}{annotation}"
    else:
        yield f"{indent}module {name}"


def label(member: Any) -> str:
    """Return what a method or attribute is, if it is not a usual one, such as ``property``."""
    return "".join(f"{kind} " for kind in _KINDS if kind in member.labels)


def record(package: str) -> str:
    """Return the text that describes the public modules of a package."""
    search = [ROOT, *sorted((ROOT / "plugins").iterdir())]
    loaded = griffe.load(
        package, search_paths=search, resolve_aliases=True, resolve_external=True, allow_inspection=False
    )
    lines: list[str] = []
    for path in PACKAGES[package]:
        module = loaded[path] if path else loaded
        lines += [f"# {package}.{path}".removesuffix("."), ""]
        for name in public_names(module):
            lines += describe(name, module[name])
        lines.append("")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Write or check the records, and return the exit code."""
    different = False
    for package in PACKAGES:
        file, now = RECORDS / f"{package}.txt", record(package)
        before = file.read_text() if file.exists() else ""
        if "--check" not in arguments:
            file.parent.mkdir(exist_ok=True)
            file.write_text(now)
        elif now != before:
            different = True
            print(*difflib.unified_diff(before.splitlines(), now.splitlines(), str(file), "now", lineterm=""), sep="\n")
    if different:
        print("The public API has changed. Read docs/contract.md, and record it with `python tools/public_api.py`.")
    return int(different)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
