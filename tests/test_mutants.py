"""Mutants that ``make mutants`` makes of source code."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutations import draw_sample, find_mutants, locate_again

SOURCE = '''"""Name of the module."""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from a import b
LIMIT: "int" = 3


def check(ü, first):
    """Docstring."""
    if ü < LIMIT and not first:
        raise ValueError(f"{ü} is {LIMIT + 1}")
    first.begin(ü,
                first)
    return first == "text"
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "pack" / "data").mkdir(parents=True)
    (tmp_path / "pack" / "module.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "pack" / "data" / "template.py").write_text("x = 1\n")
    return tmp_path


def test_each_kind_of_mutation_is_found(tree: Path) -> None:
    found = {(m.kind, m.before, m.after, m.first, m.last) for m in find_mutants(tree, ["pack"], ["pack/data/"])}
    assert found == {
        ("constant", "3", "4", 6, 6),
        ("boolean", "ü < LIMIT and not first", "not (ü < LIMIT and not first)", 11, 11),
        ("boolean", "ü < LIMIT and not first", "(ü < LIMIT) or (not first)", 11, 11),
        ("boundary", "ü < LIMIT", "ü <= LIMIT", 11, 11),
        ("comparison", "ü < LIMIT", "ü >= LIMIT", 11, 11),
        ("boolean", "not first", "bool(first)", 11, 11),
        ("raise", 'raise ValueError(f"{ü} is {LIMIT + 1}")', "pass", 12, 12),
        ("statement", "first.begin(ü,\n                first)", "pass", 13, 14),
        ("argument", "first.begin(ü,\n                first)", "first.begin(first, ü)", 13, 14),
        ("comparison", 'first == "text"', "first != 'text'", 15, 15),
        ("constant", '"text"', "'textX'", 15, 15),
    }


def test_mutants_change_one_place_and_compile(tree: Path) -> None:
    for mutant in find_mutants(tree, ["pack"], []):
        original = mutant.apply(tree)
        mutated = (tree / mutant.path).read_bytes()
        compile(mutated, mutant.path, "exec")
        assert len(mutated) - len(original) == len(mutant.after.encode()) - len(mutant.before.encode())
        (tree / mutant.path).write_bytes(original)


def test_a_mutant_of_changed_code_is_refused_and_located_again(tree: Path) -> None:
    mutant = next(m for m in find_mutants(tree, ["pack"], []) if m.kind == "raise")
    (tree / "pack" / "module.py").write_text("# One more line.\n" + SOURCE, encoding="utf-8")
    with pytest.raises(ValueError, match="python tools/mutants locate"):
        mutant.apply(tree)
    located = locate_again(mutant, find_mutants(tree, ["pack"], []))
    assert located and located.first == mutant.first + 1
    assert locate_again(mutant, []) is None


def test_a_sample_depends_on_its_seed_and_has_each_kind_equally_often(tree: Path) -> None:
    mutants = find_mutants(tree, ["pack"], [])
    assert draw_sample(mutants, 4, seed=1) == draw_sample(mutants, 4, seed=1)
    assert {tuple(draw_sample(mutants, 4, seed)) for seed in range(20)} != {tuple(draw_sample(mutants, 4, 0))}
    sample = draw_sample(mutants, 100, seed=1)
    assert len({(mutant.path, mutant.first) for mutant in sample}) == len(sample)
