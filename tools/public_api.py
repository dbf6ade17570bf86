"""Record the public names and signatures of all distributions, or check them.

usage: public_api.py [--check]

``docs/public_api/PACKAGE.txt`` lists each public module of a package with its public names: functions with their
signatures, classes with bases, methods and attributes, and constants. docs/contract.md says which modules are public
and how they may change. ``--check`` prints the differences and the public names without a docstring, and exits with 1
if there are some. Without it, the files are written.
"""

from __future__ import annotations

import ast
import difflib
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "docs" / "public_api"
SEARCH = [ROOT, *sorted((ROOT / "plugins").iterdir())]
PACKAGES: dict[str, tuple[str, ...]] = {
    "det_core": (
        "",
        "cli",
        "config",
        "core",
        "core.rank_agreement",
        "errors",
        "events",
        "experimental",
        "experimental.client",
        "home",
        "hookspecs",
        "interfaces.account_records",
        "interfaces.addresses",
        "interfaces.backend",
        "interfaces.framework",
        "interfaces.launch_preparation",
        "interfaces.launcher",
        "interfaces.observer",
        "interfaces.object_store",
        "interfaces.search_method",
        "interfaces.secrets",
        "interfaces.storage",
        "interfaces.model_records",
        "interfaces.records",
        "interfaces.server_store",
        "interfaces.tracking",
        "interfaces.webhook_records",
        "json_values",
        "launch.backends",
        "launch.context_archive",
        "launch.engine_signals",
        "launch.gpu_slots",
        "launch.machine_slots",
        "launch.network",
        "launch.node_agent",
        "launch.queued_launch",
        "launch.standalone",
        "launch.worker_output",
        "launch.worker_processes",
        "lazy",
        "metric_directions",
        "owner_process",
        "package_commands",
        "plugins",
        "runner",
        "scratch",
        "specs",
        "storage",
        "text",
        "tracking",
        "tracking.access_tokens",
        "tracking.control",
        "tracking.log_reading",
        "tracking.printable",
        "tracking.reading_limits",
        "tracking.remote",
        "tracking.webhook_delivery",
        "trial",
        "trial.metric_averages",
        "trial.random_generators",
        "trial.tensorboard_upload",
        "trial.trial_description",
        "version",
    ),
    "det_cluster": ("agent_group", "engine_launch", "mounted_storage"),
    "det_testing": (
        "",
        "backend",
        "backend.failure_tests",
        "backend.launch_tests",
        "backend.registration_tests",
        "command",
        "comparison",
        "disturbed_experiment",
        "framework",
        "framework.trial_harness",
        "job_factory",
        "launcher",
        "observer",
        "proxy",
        "requirements",
        "runs",
        "search_method",
        "storage",
        "suite",
        "trial_job",
    ),
    "det_torch": (
        "",
        "backend",
        "batch_processing",
        "process_group",
        "samplers",
        "sharding",
        "testing",
        "testing.interruptions",
        "testing.jobs",
        "testing.slot_equivalence",
        "torchrun",
    ),
    "det_tensorflow": (
        "backend",
        "checkpoint_errors",
        "context",
        "devices",
        "old_arguments",
        "optimizer",
        "testing",
        "testing.jobs",
    ),
    "det_estimator": ("",),
    "det_keras": ("", "callbacks"),
    "det_jax": ("",),
}
"""Public modules of each package, without the package's name. Backends and stores are used by their names only."""

_SECTIONS = ("parameters", "attributes")
_KINDS = ("abstractmethod", "classmethod", "staticmethod", "property")


def public_names(module: Any) -> list[str]:
    """Return the public names in a module's ``__all__``, or else its own names and those that it imports as themselves.

    ``import x as x`` is how stub files mark a re-export (PEP 484), and how packages repeat names that they import on
    first use. Of the latter, the set ``_OWN`` lists those that are for other modules of the same distribution.
    """
    if module.exports and "_EXPORTS" not in module.members:
        return sorted(name for name in map(str, module.exports) if not name.startswith("_"))
    tree = ast.parse(Path(str(module.filepath)).read_text(encoding="utf-8"))
    aliases = [alias for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
    names = {alias.name for alias in aliases if alias.asname == alias.name}
    names |= {name for name, member in module.members.items() if not member.is_alias and not member.is_module}
    own = ast.literal_eval(str(module["_OWN"].value)) if "_OWN" in module.members else set()
    return sorted(name for name in names - own if not name.startswith("_") and name != "TYPE_CHECKING")


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


@cache
def load_modules() -> dict[str, dict[str, Any]]:
    """Return the public modules of each package, by their names."""
    loader = griffe.GriffeLoader(search_paths=SEARCH, allow_inspection=False)
    packages = {name: loader.load(name) for name in PACKAGES}
    loader.resolve_aliases(external=False)
    return {
        name: {f"{name}.{path}".removesuffix("."): packages[name][path] if path else packages[name] for path in paths}
        for name, paths in PACKAGES.items()
    }


def record(modules: Mapping[str, Any]) -> str:
    """Return the text that describes modules, given by their names."""
    lines: list[str] = []
    for path, module in modules.items():
        lines += [f"# {path}", ""]
        for name in public_names(module):
            lines += describe(name, module[name])
        lines.append("")
    return "\n".join(lines)


def find_undocumented(modules: Mapping[str, Any]) -> list[str]:
    """Return the public names of modules without a docstring, sorted."""
    members = (module[name] for module in modules.values() for name in public_names(module))
    return sorted({name for member in members for name in undocumented(member)})


def undocumented(member: Any) -> Iterator[str]:
    """Yield the path of a member if it needs a docstring and has none, and those of the members of a class."""
    member = member.final_target if member.is_alias else member
    if not (member.name.startswith(("_", "test_")) or is_documented(member)):
        yield member.canonical_path
    if member.is_class:
        for part in member.members.values():
            if not part.is_alias:
                yield from undocumented(part)


def is_documented(member: Any) -> bool:
    """Return whether a docstring describes a member.

    It may be that of the member, of its class, of the overridden member or of the object that the member renames.
    Members of enumerations need none, because their names and values describe them.
    """
    owner, value = member.parent, getattr(member, "value", None)
    if member.docstring or not owner:
        return True
    if isinstance(value, griffe.ExprName) and (renamed := owner.members.get(value.name)) and renamed.docstring:
        return True
    if not owner.is_class:
        return False
    if value is not None and "Enum" in map(str, owner.bases):
        return True
    bases = [owner, *owner.mro()]
    inherited = any(base.members[member.name].docstring for base in bases if member.name in base.members)
    return inherited or any(member.name in described(base) for base in bases)


def described(owner: Any) -> set[str]:
    """Return the names in the sections ``Args`` and ``Attributes`` of the docstring of a class."""
    sections = owner.docstring.parse("google", warnings=False) if owner.docstring else ()
    return {item.name for section in sections if section.kind.value in _SECTIONS for item in section.value}


def main(arguments: list[str]) -> int:
    """Write or check the records, and return the exit code."""
    packages = load_modules()
    records = {RECORDS / f"{package}.txt": record(modules) for package, modules in packages.items()}
    if "--check" not in arguments:
        RECORDS.mkdir(exist_ok=True)
        for file, now in records.items():
            file.write_text(now, encoding="utf-8")
        return 0
    different = False
    for file, now in records.items():
        before = file.read_text(encoding="utf-8") if file.exists() else ""
        if now != before:
            different = True
            print(*difflib.unified_diff(before.splitlines(), now.splitlines(), str(file), "now", lineterm=""), sep="\n")
    if different:
        print("The public API has changed. Read docs/contract.md, and record it with `python tools/public_api.py`.")
    missing = sorted({name for modules in packages.values() for name in find_undocumented(modules)})
    for path in missing:
        print(f"{path} has no docstring")
    return int(different or bool(missing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
