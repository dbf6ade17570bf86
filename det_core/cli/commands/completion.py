"""Command ``det completion``, which prints shell scripts for completion, and the candidates for these scripts."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

import argcomplete
from argcomplete.completers import BaseCompleter, FilesCompleter
from argcomplete.lexers import split_line
from argcomplete.shell_integration import shellcode

from det_core.cli._command_table import make_argument, set_up_command
from det_core.errors import DetError

if TYPE_CHECKING:
    from det_core.interfaces.tracking import TrackingStore

_SET_UP = {
    "bash": 'add to ~/.bashrc:  eval "$(det completion bash)"',
    "zsh": 'add to ~/.zshrc, after compinit:  eval "$(det completion zsh)"',
    "fish": "run:  det completion fish > ~/.config/fish/completions/det.fish",
}
"""What to do to enable completion in every shell, by shell."""
_RECENT = 50
"""Maximum number of ids to offer. These are the newest ones."""

_ARGUMENTS = (make_argument("shell", choices=tuple(_SET_UP), help="print the completion script of this shell"),)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to the parser."""
    set_up_command(parser, _run, _ARGUMENTS, "bash")


def _run(args: argparse.Namespace) -> int:
    print(shellcode(["det"], shell=args.shell))
    print(f"# To enable completion in every shell, {_SET_UP[args.shell]}")
    return 0


def complete_words() -> int:
    """Write the candidates for the command line in the environment to the shell, in the protocol of argcomplete.

    Returns:
        The exit code.
    """
    from det_core.cli._program import parser_for

    *_, words, _ = split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))
    with suppress(DetError):  # completion shows no errors, but the completed command reports them
        parser = parser_for(words[1:])
        argcomplete.autocomplete(
            parser,
            always_complete_options=False,
            exclude=set(_aliases(parser)),
            default_completer=_ValueCompleter(),
            exit_method=sys.exit,
        )
    return 1


def _aliases(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the other names of the parser's commands. They are accepted, but not offered."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            names: dict[argparse.ArgumentParser, str] = {}
            yield from (name for name, child in action.choices.items() if names.setdefault(child, name) != name)
            for child in names:
                yield from _aliases(child)


class _ValueCompleter(BaseCompleter):
    """Completer of arguments without choices, with ids from the tracking store or names of files."""

    def __call__(self, *, prefix: str, action: argparse.Action, **_: object) -> Iterable[str]:
        ids = _IDS.get(action.dest)
        if ids is None:
            return FilesCompleter()(prefix)
        from det_core.tracking import open_store  # most completions do not need it, and its import takes long

        with suppress(DetError), open_store(wait=1) as store:
            return [str(one) for one in ids(store)]
        return ()


def _experiments(store: TrackingStore) -> list[int]:
    return [experiment.id for experiment in store.experiments(limit=_RECENT, brief=True)]


def _trials(store: TrackingStore) -> Iterable[int]:
    newest = (trial.id for number in _experiments(store) for trial in reversed(store.trials(number)))
    return islice(newest, _RECENT)


def _checkpoints(store: TrackingStore) -> list[str]:
    from det_core.interfaces.records import CheckpointState

    return [checkpoint.uuid for checkpoint in store.checkpoints(states=[CheckpointState.COMPLETED])[-_RECENT:]]


_IDS: dict[str, Callable[[TrackingStore], Iterable[object]]] = {
    "experiment_id": _experiments,
    "experiment_ids": _experiments,
    "trial_id": _trials,
    "trial_ids": _trials,
    "trial": _trials,
    "uuid": _checkpoints,
    "uuids": _checkpoints,
}
"""Functions that return candidates from the tracking store, by name of the argument."""
