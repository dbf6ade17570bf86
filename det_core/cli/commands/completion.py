"""Command ``det completion``, which prints shell scripts for completion and completes words for them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from det_core.cli._command_table import add_arguments, make_argument
from det_core.errors import DetError
from det_core.interfaces.records import CheckpointState
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

_SCRIPTS = {
    "bash": """\
# To enable completion in every shell, add to ~/.bashrc:  eval "$(det completion bash)"
_det() {
    local IFS=$'\\n'
    COMPREPLY=($(det completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _det det
""",
    "zsh": """\
# To enable completion in every shell, add to ~/.zshrc, after compinit:  eval "$(det completion zsh)"
_det() {
    local -a found
    found=("${(@f)$(det completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found" ]]; then compadd -a found; else _files; fi
}
compdef _det det
""",
    "fish": """\
# To enable completion in every shell:  det completion fish > ~/.config/fish/completions/det.fish
complete -c det -f -a '(set -l found (det completion words -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)
    if test -n "$found"; string join \\n $found; else; __fish_complete_path (commandline -ct); end)'
""",
}
"""Scripts by shell. If det has no candidates, the shell completes file names."""

_RECENT = 50
"""Maximum number of ids to offer. These are the newest ones."""

_ARGUMENTS = (
    make_argument(
        "shell",
        choices=(*_SCRIPTS, "words"),
        metavar="{" + ",".join(_SCRIPTS) + "}",
        help="print the completion script of this shell",
    ),
    make_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to the parser."""
    add_arguments(parser, _ARGUMENTS)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    if args.shell != "words":
        print(_SCRIPTS[args.shell], end="")
        return 0
    with suppress(DetError):  # completion shows no errors, but the completed command reports them
        words = args.words[1:] if args.words[:1] == ["--"] else args.words  # argparse may remove it
        print("".join(f"{word}\n" for word in candidates(words)), end="")
    return 0


def candidates(words: list[str]) -> list[str]:
    """Return the candidates for the last word, which start with it.

    Args:
        words: words of the command line after ``det``. The last one, which may be empty, is completed.

    Returns:
        The candidates in alphabetical order. Empty if a file is expected.
    """
    from det_core.cli._program import parser_for

    *before, current = words or [""]
    parser: argparse.ArgumentParser = parser_for(before)
    waiting: list[argparse.Action] = list(parser._get_positional_actions())
    value_of: argparse.Action | None = None
    for word in before:
        if value_of is not None:
            value_of = None
        elif word.startswith("-"):
            option = parser._option_string_actions.get(word)
            value_of = option if option is not None and option.nargs != 0 else None
        elif waiting and isinstance(waiting[0], argparse._SubParsersAction):
            parser = waiting[0].choices.get(word, argparse.ArgumentParser(add_help=False))
            waiting = list(parser._get_positional_actions())
        elif waiting and waiting[0].nargs not in ("*", "+"):
            waiting.pop(0)
    if value_of is None and current.startswith("-"):
        found: Iterable[str] = parser._option_string_actions
    else:
        found = _values(value_of or next(iter(waiting), None))
    return sorted({word for word in found if word.startswith(current)})


def _values(action: argparse.Action | None) -> Iterable[str]:
    if action is None:
        return ()
    if isinstance(action, argparse._SubParsersAction):
        return {id(parser): name for name, parser in reversed(action.choices.items())}.values()  # without aliases
    if action.choices is not None:
        return [getattr(choice, "value", str(choice)) for choice in action.choices]
    ids = _IDS.get(action.dest)
    return _recorded(ids) if ids else ()


def _recorded(ids: Callable[[TrackingStore], Iterable[object]]) -> Iterator[str]:
    with open_store(wait=1) as store:
        yield from map(str, ids(store))


def _experiments(store: TrackingStore) -> list[int]:
    return [experiment.id for experiment in store.experiments(limit=_RECENT)]


def _trials(store: TrackingStore) -> list[int]:
    newest = (trial.id for number in _experiments(store) for trial in reversed(store.trials(number)))
    return [trial for _, trial in zip(range(_RECENT), newest, strict=False)]


def _checkpoints(store: TrackingStore) -> list[str]:
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
