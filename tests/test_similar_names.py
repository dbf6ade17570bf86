"""Suggestions for misspelled names."""

from __future__ import annotations

import time

from det_core.similar_names import suggest_name


def test_suggestions_take_limited_work() -> None:
    known = [f"{'ab' * 48}{number}" for number in range(20_000)]
    begin = time.process_time()
    assert suggest_name("ab" * 48 + "x", known)
    assert time.process_time() - begin < 5


def test_long_names_and_those_beyond_the_first_ones_are_not_compared() -> None:
    known = ["a" * 101, *(f"{number}" for number in range(199)), "accuracy", "loss"]
    assert suggest_name("accurcy", known) == "; did you mean 'accuracy'?"
    assert suggest_name("los", known) == ""
    assert suggest_name("a" * 101, known) == ""
    assert suggest_name("a" * 100, known) == ""
