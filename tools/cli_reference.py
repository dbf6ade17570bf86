"""Reference of the command ``det``, made of its argument parsers: a section per command."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from unittest.mock import patch

from api_reference import escaped

from det_core.cli._program import complete_parser

_WIDTH = "88"


def render_commands() -> str:
    """Return the sections of all commands as Markdown."""
    with patch.dict(os.environ, {"COLUMNS": _WIDTH, "NO_COLOR": "1"}):
        commands = sorted(_subcommands(complete_parser()).items())
        return "\n".join(line for _, parser in commands for line in _command(parser, 2))


def _subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands of a group by name, without aliases."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            names = [choice.dest for choice in action._choices_actions]
            return {name: action.choices[name] for name in names}
    return {}


def _command(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    inner = _subcommands(parser)
    yield from (f"{'#' * level} {parser.prog}", "", _prose(parser.description or ""), "")
    if not inner:
        indent = " " * len("usage: ")
        yield from (
            "```text",
            parser.format_usage().removeprefix("usage: ").replace(f"\n{indent}", "\n").rstrip(),
            "```",
            "",
        )
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if _is_shown(action)]
        for place, action in enumerate(actions):
            if place == 0 and group.title not in ("positional arguments", "options"):
                yield from (f"**{group.title}**", "")
            yield _argument(action)
        if actions:
            yield ""
    if parser.epilog:
        yield from ("```text", parser.epilog.rstrip(), "```", "")
    for child in inner.values():
        yield from _command(child, level + 1)


def _is_shown(action: argparse.Action) -> bool:
    hidden = (argparse._HelpAction, argparse._VersionAction, argparse._SubParsersAction)
    return not isinstance(action, hidden) and action.help != argparse.SUPPRESS


def _argument(action: argparse.Action) -> str:
    names = ", ".join(f"`{name}`" for name in action.option_strings)
    described = " ".join(filter(None, (names, _value(action))))
    return f"- {described}: {_prose(_help(action))}" if action.help else f"- {described}"


def _value(action: argparse.Action) -> str:
    """Return the placeholder of the value of an argument, or nothing for a flag."""
    if action.nargs == 0:
        return ""
    names = action.metavar or (action.option_strings and action.dest.upper()) or action.dest
    if action.choices and not action.metavar:
        return "`{" + ",".join(map(str, action.choices)) + "}`"
    text = " ".join(names) if isinstance(names, tuple) else str(names)
    return f"`{text}{' ...' if action.nargs in ('*', '+') else ''}`"


def _help(action: argparse.Action) -> str:
    return str(action.help) % {**vars(action), "prog": "det"}


def _prose(text: str) -> str:
    """Return a text of a parser as Markdown, with options such as --limit as code."""
    return re.sub(r"(?<![\w-])(--[a-z][\w-]*)", r"`\1`", escaped(text))
