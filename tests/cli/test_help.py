"""Help of all commands: a summary, grouped options and examples that can be parsed."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator

import pytest

from det_core.cli._program import complete_parser

from .conftest import Det


def walk(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in dict.fromkeys(action.choices.values()):
                yield from walk(child)


COMPLETE = complete_parser()
PARSERS = {parser.prog: parser for parser in walk(COMPLETE)}


@pytest.mark.parametrize("prog", PARSERS)
def test_each_command_has_a_summary_and_an_example(prog: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    parser = PARSERS[prog]
    assert parser.description and len(parser.description) > 3
    examples = re.findall(r"^(?:  |example: )(det\b.*)$", parser.epilog or "", re.MULTILINE)
    assert examples
    for line in examples:
        words = shlex.split(line.partition(" > ")[0], comments=True)
        assert " ".join(words).startswith(prog)
        assert COMPLETE.parse_args(words[1:]).run
    shown = parser.format_help().splitlines()
    assert max(map(len, shown)) <= 80
    wrapped = [line for line in examples if not any(each.endswith(line) for each in shown)]
    assert wrapped == []


@pytest.mark.parametrize("prog", PARSERS)
def test_each_argument_has_help(prog: str) -> None:
    arguments = (one for one in PARSERS[prog]._actions if not isinstance(one, argparse._SubParsersAction))
    assert [one.dest for one in arguments if not one.help] == []


def test_options_of_output_and_filters_have_titles_of_their_own(det: Det) -> None:
    sections = re.split(r"^(\w[\w ]*):$", det("experiment", "list", "--help").out, flags=re.MULTILINE)
    found = dict(zip(sections[1::2], sections[2::2], strict=True))
    assert "--json" in found["output"] and "--state" in found["filters"]
    assert "--json" not in found["options"]


@pytest.mark.parametrize(
    ("argv", "expected", "usage"),
    [
        (["experiment", "lst"], "did you mean 'list'?", "usage: det experiment "),
        (["e", "label", "ad"], "did you mean 'add'?", "usage: det experiment label "),
        (
            ["experiment", "list", "--stat=ACTIVE", "--limt", "3"],
            "did you mean '--limit'?",
            "usage: det experiment list ",
        ),
        (["model", "list", "--sort-by", "nam"], "did you mean 'name'?", "usage: det model list "),
        (["trial", "logs", "1", "--stdtype", "other"], "choose from stdout, stderr, det", "usage: det trial logs "),
        (["checkpoint", "gc"], "expected either EXPERIMENT_ID or --orphans", "usage: det checkpoint gc "),
        (["tensorboard"], "missing EXPERIMENT_ID", "usage: det tensorboard "),
        (["run", "a.yaml", "b", "c"], "unrecognized arguments: c", "usage: det run "),
    ],
)
def test_errors_suggest_names_and_show_the_usage_of_the_subcommand(
    det: Det, argv: list[str], expected: str, usage: str
) -> None:
    result = det(*argv)
    assert (result.code, result.out) == (2, "")
    assert expected in result.err
    assert usage in result.err
