"""Names of other projects on which det relies, which docs/reference/upgrades.md lists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import sqlalchemy
from private_names import Distribution, find_distributions

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "upgrades.md"
ROWS = re.findall(r"^\| `([\w/.]+)` \| (.*?) \| .* \|$", PAGE.read_text(), re.MULTILINE)
LIBRARIES = [Path(sqlalchemy.__file__).parents[1], Path(ast.__file__).parent]
PUBLIC = {"_asdict", "_exit", "_fields", "_make", "_replace"}
"""Names of the standard library that are public in spite of an underscore."""


@pytest.mark.parametrize(("file", "names"), ROWS, ids=[f"{file}-{number}" for number, (file, _) in enumerate(ROWS)])
def test_a_library_contains_the_names_that_det_uses(file: str, names: str) -> None:
    library = next((root for root in LIBRARIES if (root / file.partition("/")[0]).exists()), None)
    if library is None:
        pytest.skip(f"{file.partition('/')[0]} is not installed")
    path = library / file
    assert path.exists(), f"{path} is gone; see where {names} are now, and read {PAGE.name}"
    text = path.read_text(encoding="utf-8")
    missing = [name for name in re.findall(r"`([\w-]+)`", names) if not re.search(rf"\b{name}\b", text)]
    assert missing == [], f"{path} no longer contains these names; {PAGE.name} says what det does with them"


def private_uses(distribution: Distribution, ours: set[str]) -> set[str]:
    """Return the private names in the code of a distribution that no distribution of det defines."""
    nodes = [node for file in distribution.files for node in distribution.nodes[file]]
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    names |= {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    return {name for name in names if re.match("_[^_]", name)} - ours - PUBLIC


@pytest.mark.integration
def test_the_page_lists_every_private_name_of_other_projects() -> None:
    code = [
        Distribution(one.packages, tuple(file for file in one.files if "tests" not in file.parts))
        for one in find_distributions(ROOT)
        if one.packages
    ]
    ours = {file.stem for one in code for file in one.files}.union(*(one.attributes | one.globals for one in code))
    listed = set(re.findall(r"`(_\w+)`", PAGE.read_text()))
    assert set().union(*(private_uses(one, ours) for one in code)) - listed == set(), f"add them to {PAGE.name}"
