"""Command ``det plugins``, which lists and checks the installed plugins, and starts new ones."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from det_core.cli._command_table import JSON, Command, add_commands, make_argument
from det_core.cli.commands._plugin_templates import TEMPLATES, PluginNames, render_files, write_files
from det_core.cli.render.printing import print_json
from det_core.errors import PluginNotFound
from det_core.plugins import KINDS, PluginReport, normalize_distribution_name, plugin_registry
from det_core.similar_names import suggest_name
from det_core.specs import Spec
from det_core.text import format_count, format_facts, format_table, join_sections, record_to_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the commands to the parser."""
    add_commands(parser, _COMMANDS)


def _list(args: argparse.Namespace) -> int:
    reports = plugin_registry().reports
    if args.json:
        print_json(map(_document, reports))
    else:
        rows = ((one.name, one.version, one.status, _offers(one) or one.problem) for one in reports)
        print(format_table(("distribution", "version", "status", "offers"), rows))
    return 0


def _show(args: argparse.Namespace) -> int:
    report = _find(args.name)
    if args.json:
        print_json(_document(report, imports=True))
        return 0
    head = {name: getattr(report, name) for name in ("name", "version", "module", "status", "problem")}
    head["hooks"] = ", ".join(report.hooks)
    rows = [(kind, spec.name, spec.target, spec.config_model) for kind, spec in report.provides]
    observers = [(spec.name, ", ".join(_received(spec))) for kind, spec in report.provides if kind == "observer"]
    print(
        join_sections(
            format_facts(head),
            format_table(("kind", "name", "target", "config model"), rows) if rows else "",
            format_table(("observer", "receives"), observers) if observers else "",
        )
    )
    return 0


def _check(args: argparse.Namespace) -> int:
    from det_core.cli.commands._plugin_checks import find_plugin_problems  # imports pydantic, which lists do not need

    registry = plugin_registry()
    reports = [_find(args.name)] if args.name else [each for each in registry.reports if each.status != "disabled"]
    problems = find_plugin_problems(registry, reports)
    if args.json:
        print_json({"ok": not problems, "problems": problems})
    elif problems:
        print(*problems, sep="\n")
    else:
        offers = sum(len(one.provides) for one in reports)
        print(f"{format_count(len(reports), 'distribution')}, {format_count(offers, 'plugin')}: ok")
    return 1 if problems else 0


def _new(args: argparse.Namespace) -> int:
    names = PluginNames.parse(args.kind.replace("-", "_"), args.name)
    names.refuse_clash()
    directory, contents = args.directory or Path(names.distribution), render_files(names)
    write_files(directory, contents)
    commands = [
        f"cd {shlex.quote(str(directory))}",
        "pip install -e '.[test]'",
        "pytest",
        f"det plugins check {names.distribution}",
    ]
    if args.json:
        described = {"kind": names.kind, "name": names.plugin, "distribution": names.distribution}
        print_json({**described, "directory": directory.absolute(), "files": list(contents), "next": commands})
    else:
        print(f"{directory} contains {names.distribution}, {format_count(len(contents), 'file')}. Next, type:")
        print(*(f"  {command}" for command in commands), sep="\n")
    return 0


def _document(report: PluginReport, imports: bool = False) -> dict[str, Any]:
    def one(kind: str, spec: Spec) -> dict[str, Any]:
        received = {"receives": _received(spec)} if imports and kind == "observer" else {}
        return record_to_json(spec, kind=kind, **received)

    return record_to_json(report, provides=[one(kind, spec) for kind, spec in report.provides])


def _received(spec: Spec) -> list[str]:
    """Import an observer, and return the names of the events that it receives.

    Raises:
        PluginError: it cannot be imported.
    """
    from det_core.interfaces.observer import received_events  # other plugins do not need it

    target = plugin_registry().load(spec)
    return received_events(target) if isinstance(target, type) else ["depends on the options"]


def _offers(report: PluginReport) -> str:
    """Format the plugins of a distribution by kind.

    The text is like ``framework pytorch; storage directory, shared_fs``.
    """
    names = {kind: [spec.name for its_kind, spec in report.provides if its_kind == kind] for kind in KINDS}
    names["hook"] = list(report.hooks)
    return "; ".join(f"{kind.replace('_', ' ')} {', '.join(offered)}" for kind, offered in names.items() if offered)


def _find(name: str) -> PluginReport:
    reports = {report.name: report for report in plugin_registry().reports}
    wanted = normalize_distribution_name(name)
    if wanted in reports:
        return reports[wanted]
    hint = suggest_name(wanted, reports) or f"; installed: {', '.join(reports)}"
    raise PluginNotFound(f"no installed distribution {name!r} offers plugins{hint}")


_KINDS = {kind.replace("_", "-"): template.summary for kind, template in TEMPLATES.items()}
"""Kinds of plugins that `_new` writes, as they are typed, mapped to their descriptions."""


def _type_kind(text: str) -> str:
    """Return the kind with hyphens, as commands write it. The registry writes ``search_method``."""
    return text.replace("_", "-")


_COMMANDS = (
    Command(
        "list",
        _list,
        "list the installed distributions and the plugins that they offer",
        (JSON,),
        ("ls",),
        example="--json",
    ),
    Command(
        "show",
        _show,
        "show one distribution and its plugins",
        (make_argument("name", metavar="NAME", help="name of a distribution"), JSON),
        example="det-torch",
    ),
    Command(
        "check",
        _check,
        "import all plugins, or those of one distribution, and report problems; the exit code is 1 if there are any",
        (make_argument("name", metavar="NAME", nargs="?", help="name of a distribution; default: all"), JSON),
        example="det-torch",
    ),
    Command(
        "new",
        _new,
        "write a distribution with a small working plugin, its tests and its README",
        (
            make_argument("kind", type=_type_kind, choices=tuple(_KINDS), metavar="KIND", help="kind of the plugin"),
            make_argument("name", metavar="NAME", help="name of the plugin, such as my-plugin"),
            make_argument(
                "directory", type=Path, nargs="?", metavar="DIR", help="new or empty directory; default: ./det-NAME"
            ),
            JSON,
        ),
        epilog="\n".join(("kinds:", *(f"  {kind:<13}  {summary}" for kind, summary in _KINDS.items()))),
        example="storage my-store",
    ),
)
