"""The errors in docs/faq.md are those that det raises."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "faq.md").read_text()
MESSAGES = [heading.strip() for heading in re.findall(r"^### `+(.*?)`+$", TEXT, re.MULTILINE)]


@cache
def messages_in_code() -> str:
    """Return all texts in the code of det and its plugins, with an ellipsis for each value."""
    files = [*(ROOT / "det_core").rglob("*.py"), *(ROOT / "plugins").glob("*/det*/**/*.py")]
    trees = (ast.parse(file.read_text()) for file in files if "testing" not in file.parts)
    return "\n".join(text for tree in trees for node in ast.walk(tree) if (text := message_of(node)))


def message_of(node: ast.AST) -> str:
    """Return the text of a literal, with an ellipsis for each value in it, or an empty text for other nodes."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    text = node.value if isinstance(node, ast.Constant) else None
    return re.sub(r"%(?:\.\d+f|[sdrg])|\{[\w!:.]+\}", "…", text) if isinstance(text, str) else ""


@pytest.mark.integration  # it reads all distributions
@pytest.mark.parametrize("message", MESSAGES)
def test_the_error_exists(message: str) -> None:
    assert message in messages_in_code()


def test_every_heading_is_an_error() -> None:
    assert len(MESSAGES) == TEXT.count("\n### ") >= 30
