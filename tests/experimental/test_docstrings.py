"""The examples in the SDK's docstrings, run as tests."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

from det_core import experimental
from det_core.experimental import Determined
from det_core.interfaces.records import State

from ..cli.conftest import Record

MODULES = [f"det_core.experimental.{module.name}" for module in pkgutil.iter_modules(experimental.__path__)]


@pytest.mark.integration
@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str, trained: Record) -> None:
    module = importlib.import_module(name)
    for test in doctest.DocTestFinder().find(module, globs={"Determined": Determined, "State": State}):
        result = doctest.DocTestRunner().run(test)
        assert result.failed == 0, test.name


def test_most_classes_have_examples() -> None:
    shown = {
        test.name.rpartition(".")[2]
        for name in MODULES
        for test in doctest.DocTestFinder().find(importlib.import_module(name))
        if test.examples
    }
    assert {"Determined", "ExperimentReference", "TrialReference", "Checkpoint", "Model"} <= shown
