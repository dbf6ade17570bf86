"""Every command works or reports one error, whatever its arguments are."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from det_testing import is_soak

from det_core.cli._program import complete_parser
from det_core.plugins import plugin_registry
from det_core.plugins._known_distributions import DISTRIBUTIONS
from det_core.plugins._registry import DISABLE_VARIABLE

from ..nasty_values import NUMBERS, TEXTS, interrupted_after_seconds
from .conftest import Det, Record

pytestmark = pytest.mark.integration  # it runs all commands of all distributions

WORDS = {
    **{name: text for name, text in TEXTS.items() if name not in ("NUL", "surrogate")},  # no shell can pass these
    **{name: str(number) for name, number in NUMBERS.items()},
    "overflow": "1e309",
}
USUAL = {
    "config": "const.yaml",
    "directory": "code",
    "experiment_ids": "99",  # a known one would start TensorBoard
    "file": "const.yaml",
    "kind": "storage",
    "name": "digits",
    "uuid": "best-one",
}
"""Words for arguments that another argument needs, by their names. Others are 1, which is also an id."""
INTERNAL = ("Traceback", "invalid literal", "object has no attribute", "NoneType", "object at 0x")
"""Parts of messages that are for programmers."""
_EACH = 1 if is_soak() else 5
"""Each argument gets every fifth word, and in the soak all of them."""


@cache
def commands() -> dict[str, argparse.ArgumentParser]:
    return dict(_find_commands(complete_parser(), ""))


def _find_commands(parser: argparse.ArgumentParser, path: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for group in groups:
        names = {id(child): name for name, child in reversed(group.choices.items())}  # without aliases
        for child in dict.fromkeys(group.choices.values()):
            yield from _find_commands(child, f"{path} {names[id(child)]}".strip())
    if not groups:
        yield path, parser


def command_line(parser: argparse.ArgumentParser, nasty: argparse.Action, word: str) -> list[str]:
    """Return the arguments of a command, of which one is nasty, and the others as few and usual as possible."""
    options, positionals = [], []
    for action in parser._actions:
        if action is nasty and action.option_strings:
            flag = action.option_strings[-1]
            options.append(f"{flag}={word}" if flag.startswith("--") else f"{flag}{word}")
        elif action.dest == "yes":
            options.append("--yes")
        elif action.required or (action is nasty or not (action.option_strings or nasty.option_strings)):
            positionals.append(word if action is nasty else USUAL.get(action.dest, "1"))
        if action is nasty and not nasty.option_strings:
            break
    return [*options, "--", *positionals]


@pytest.fixture
def place(trained: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory deep enough for ``..``, with a trained experiment, a model, a config and code."""
    trained.store.create_model("digits")
    trained.store.add_model_version("digits", "best-one")
    trained.store.close()
    directory = tmp_path / "some" / "where"
    (directory / "code").mkdir(parents=True)
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 1}}
    (directory / "const.yaml").write_text(json.dumps({"entrypoint": "missing:Trial", "searcher": searcher}))
    monkeypatch.chdir(directory)
    monkeypatch.setenv(DISABLE_VARIABLE, ",".join(DISTRIBUTIONS["backend"].values()))  # det doctor rehearses with these
    plugin_registry.cache_clear()
    return directory


@pytest.mark.parametrize("command", commands())
def test_a_nasty_argument_works_or_is_one_error(det: Det, place: Path, det_home: Path, command: str) -> None:
    kept = det_home.with_name("kept")
    shutil.copytree(det_home, kept)
    parser = commands()[command]
    forms = [["--json"], []] if "--json" in parser._option_string_actions else [[]]
    found = {}
    for number, action in enumerate(parser._actions):
        for name in [*WORDS][number % _EACH :: _EACH] if action.nargs != 0 else ():
            form = forms[len(name) % len(forms)]
            with interrupted_after_seconds():
                result = det(*command.split(), *form, *command_line(parser, action, WORDS[name]))
            said = result.out + result.err
            if result.code not in (0, 1, 2, 130) or any(part in said for part in INTERNAL):
                found[action.dest, name] = said
            if result.code in (1, 2) and not (result.json if form else said):
                found[action.dest, name] = "nothing"
            if result.code == 0:
                shutil.rmtree(det_home)
                shutil.copytree(kept, det_home)
    assert not found
