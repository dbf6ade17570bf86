"""Tests of the help of a command, and of what listing it costs."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from det_core.plugins import plugin_registry
from det_core.specs import CommandSpec
from det_testing.command._command_suite import CommandSuite, Det

_IMPORTED = """
import json, sys
from pathlib import Path
from det_core.cli import main
assert main(["--help"]) == 0
Path(sys.argv[1]).write_text(json.dumps(sorted(sys.modules)))
"""


class CommandHelpTests(CommandSuite):
    """Tests that the help is complete and quick."""

    def test_help_describes_the_command(self, det: Det, spec: CommandSpec, directory: Path) -> None:
        """A ``%`` in a help text, which argparse takes for a format, is a frequent reason of failure.

        Help must also be available where the command could not work, so it opens no tracking store.
        """
        before = sorted(directory.rglob("*"))
        ran = det(self.name, "--help")
        assert (ran.returncode, ran.stderr) == (0, "")
        assert ran.stdout.startswith(f"usage: det {self.name}")
        assert spec.help and spec.help in " ".join(ran.stdout.split()), "expected a CommandSpec with `help`"
        assert sorted(directory.rglob("*")) == before, "the help has created files"

    def test_help_describes_every_option(self, parser: argparse.ArgumentParser) -> None:
        """Options without help are of use only to their author. The commands of a group need help, too."""
        for group in _all_parsers(parser):
            text = group.format_help()
            for action in group._actions:
                for flag in action.option_strings:
                    assert flag in text and action.help, f"{group.prog}: {flag} has no help"
                if isinstance(action, argparse._SubParsersAction):
                    described = len(action._choices_actions)
                    assert described == len(_children(action)), f"{group.prog}: a command has no help"

    def test_every_command_has_a_function(self, parser: argparse.ArgumentParser) -> None:
        """A parser without commands of its own sets ``run``. Otherwise the command ends with a traceback."""
        for name, run in _functions(parser):
            assert callable(run), f"{name}: call parser.set_defaults(run=function)"

    def test_the_list_of_commands_is_quick(
        self, det: Det, spec: CommandSpec, directory: Path, environment: dict[str, str]
    ) -> None:
        """Every ``det`` command imports the plugin module. It must not import a framework, nor the command itself."""
        listed = det("--help")
        assert listed.returncode == 0, listed.stderr
        assert f"{self.name} " in listed.stdout and spec.help in " ".join(listed.stdout.split())
        reports = plugin_registry().reports
        plugin = next(report for report in reports if any(offered is spec for _, offered in report.provides))
        without = _imported(directory, {**environment, "DET_DISABLE_PLUGINS": plugin.name})
        added = _imported(directory, environment) - without
        assert len(added) <= self.module_budget, f"{plugin.module} adds {len(added)} modules: {sorted(added)}"
        module = spec.target.partition(":")[0]
        assert module == plugin.module or module not in added


def _all_parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser and those of all its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in _children(action):
                yield from _all_parsers(child)


def _functions(parser: argparse.ArgumentParser, inherited: Any = None) -> Iterator[tuple[str, Any]]:
    """Yield the name and the function of each command of a parser. The parsers of commands inherit the function."""
    run = parser.get_default("run") or inherited
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield parser.prog, run
    for child in (child for group in groups for child in _children(group)):
        yield from _functions(child, run)


def _children(group: argparse._SubParsersAction[argparse.ArgumentParser]) -> list[argparse.ArgumentParser]:
    """Return the parsers of the commands of a group. Aliases share one."""
    return list({id(child): child for child in group.choices.values()}.values())


def _imported(directory: Path, environment: dict[str, str]) -> set[str]:
    """Return the modules that ``det --help`` imports."""
    names = directory / "modules.json"
    command = [sys.executable, "-c", _IMPORTED, str(names)]
    subprocess.run(command, cwd=directory, env=environment, check=True, capture_output=True, timeout=60)
    return set(json.loads(names.read_text(encoding="utf-8")))
