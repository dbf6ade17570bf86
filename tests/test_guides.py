"""The code of the guides is valid, and the errors in docs/faq.md are those that det raises."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from det_core.cli._program import parser_for
from det_core.config import parse_config
from tests.testing.documents import snippets

ROOT = Path(__file__).parent.parent
FAQ = ROOT / "docs" / "faq.md"
PAGES = [ROOT / "docs" / "start.md", FAQ, *sorted((ROOT / "docs").glob("guides/*.md"))]
PAGES += sorted((ROOT / "docs").glob("concepts/*.md"))
START = yaml.safe_load(snippets(PAGES[0], "yaml")[0])
OTHER_PROGRAMS = (
    ".",
    "cd",
    "export",
    "kill",
    "mkdir",
    "pip",
    "python",
    "python3",
    "sleep",
    "torchrun",
)


def code_of(language: str) -> list[Any]:
    return [
        pytest.param(code, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, code in enumerate(snippets(page, language))
    ]


def command_lines() -> Iterator[str]:
    for page in PAGES:
        indented = re.findall(r"^ +```bash\n(.*?)^ +```", page.read_text(), re.DOTALL | re.MULTILINE)
        for code in [*snippets(page, "bash"), *indented]:
            for line in code.splitlines():
                yield re.sub(r"( #| >| 2>|; kill).*", "", line).strip()


@pytest.mark.parametrize("line", sorted({line for line in command_lines() if line}))
def test_every_command_line_is_parsed(line: str) -> None:
    program, *arguments = shlex.split(line)
    assert program in ("det", *OTHER_PROGRAMS)
    if program == "det":
        assert parser_for(arguments).parse_args(arguments).run


@pytest.mark.parametrize("code", code_of("yaml"))
def test_every_config_is_valid(code: str) -> None:
    """Parts of configs are completed with the config of the start page."""
    part: Mapping[str, Any] = yaml.safe_load(code)
    assert parse_config(part if "entrypoint" in part else {**START, **part}).searcher.metric


@pytest.mark.parametrize("code", code_of("python"))
def test_every_program_compiles(code: str) -> None:
    assert compile(code, "docs", "exec")


def test_all_code_is_tested() -> None:
    """No fence has a language for which there is no test. ``text`` is output."""
    fences = {name for page in PAGES for name in re.findall(r"^ *```(\S.*)$", page.read_text(), re.MULTILINE)}
    assert fences <= {"bash", "python", "yaml", "text", "{toctree}", "{sequence}", "{strip}"}


@cache
def messages_in_code() -> str:
    """Return all texts in the code of det and its plugins, with an ellipsis for each value."""
    files = [*(ROOT / "det_core").rglob("*.py"), *(ROOT / "plugins").glob("*/det*/**/*.py")]
    return "\n".join(
        text
        for file in files
        if "testing" not in file.parts
        for node in ast.walk(ast.parse(file.read_text()))
        if (text := message_of(node))
    )


def message_of(node: ast.AST) -> str:
    """Return the text of a literal, with an ellipsis for each value in it, or an empty text for other nodes."""
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
    text = node.value if isinstance(node, ast.Constant) else None
    return re.sub(r"%[sdrg]|\{[\w!:.]+\}", "…", text) if isinstance(text, str) else ""


MESSAGES = [heading.strip() for heading in re.findall(r"^### `+(.*?)`+$", FAQ.read_text(), re.MULTILINE)]


@pytest.mark.parametrize("message", MESSAGES)
def test_each_error_of_the_questions_exists(message: str) -> None:
    assert message in messages_in_code()


def test_the_questions_have_many_errors() -> None:
    assert len(MESSAGES) == FAQ.read_text().count("\n### ") >= 30
