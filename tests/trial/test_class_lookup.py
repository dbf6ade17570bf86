"""Entrypoints that name no trial. The errors say what was found instead."""

from __future__ import annotations

import pytest

from det_core.errors import InvalidTrial
from det_core.trial import load_trial_class


@pytest.mark.parametrize(
    ("entrypoint", "message"),
    [
        (
            "fractions:Fraction",
            r"'fractions:Fraction' is <class 'fractions.Fraction'>, which is not a trial; expected 'module:Class'",
        ),
        ("fractions:math", "is <module 'math'.*, which is not a trial"),
        ("pathlib:Pth", "the module 'pathlib' has no 'Pth'.*did you mean 'Path'"),
        ("no_such_module:A", "there is no module 'no_such_module' in the context directory"),
        ("pathlib.missing:A", "there is no module 'pathlib.missing'"),
        (":A", "':A' names no module; expected 'module:Class'"),
        (".a:A", "'.a:A' names no module; expected 'module:Class'"),
    ],
)
def test_an_entrypoint_that_is_no_trial_is_an_error(entrypoint: str, message: str) -> None:
    with pytest.raises(InvalidTrial, match=message):
        load_trial_class(entrypoint)
