"""The example in docs/frameworks.md works. The framework is registered, trains an experiment, and passes the suite."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
import test_descent
from det_testing.framework import FrameworkCompliance

from det_core.specs import FrameworkSpec
from plugins.testing.tests.document_parts import declared_attributes, first_column, require_example, snippets
from plugins.testing.tests.plugin_sites import plugin_environment, run_module

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "framework_plugin"
DOCUMENT = ROOT / "docs" / "frameworks.md"
(CONFIG,) = snippets(DOCUMENT, "yaml")
SMALLEST, *_ = snippets(DOCUMENT, "python")

COUNTS = """
import os
from pathlib import Path
from det_smallest import NumberTrial

class Counts(NumberTrial):
    def improve(self, number):
        failed = Path(os.environ["DET_HOME"], "failed")
        if number == 5 and not failed.exists():
            failed.touch()
            raise RuntimeError("once")
        return number + 1

    def loss(self, number):
        return 100 - number
"""
COUNTS_CONFIG = """
entrypoint: model_def:Counts
searcher: {name: single, metric: loss, max_length: {batches: 8}}
min_checkpoint_period: {batches: 2}
scheduling_unit: 2
max_restarts: 1
"""


@pytest.mark.integration
class TestExample(test_descent.TestDescent):
    pass


@pytest.mark.integration
@pytest.mark.usefixtures("registered")
def test_the_config_trains_with_the_framework(det: Callable[..., str], tmp_path: Path) -> None:
    assert "det-descent" in det("plugins", "list")
    assert det("plugins", "check", "det-descent").endswith("exit code 0")
    (tmp_path / "const.yaml").write_text(CONFIG)
    (tmp_path / "test_descent.py").write_text((EXAMPLE / "test_descent.py").read_text())
    told = run_module(tmp_path, "det_core.cli", "run", "const.yaml")
    assert told.endswith("exit code 0"), told
    assert "trial 1: batch 20/20 " in told


@pytest.mark.integration
@pytest.mark.slow
def test_the_smallest_framework_trains_and_resumes(tmp_path: Path) -> None:
    environment = plugin_environment(tmp_path / "site", "det_smallest")
    (tmp_path / "site" / "det_smallest.py").write_text(SMALLEST)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "model_def.py").write_text(COUNTS)
    (tmp_path / "code" / "const.yaml").write_text(COUNTS_CONFIG)
    command = [sys.executable, "-m", "det_core.cli", "run", "const.yaml"]
    ran = subprocess.run(command, cwd=tmp_path / "code", env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert "after 4 batches" in ran.stdout + ran.stderr
    assert "best loss=92 at batch 8" in ran.stdout, ran.stdout


@pytest.mark.parametrize("language", ["python", "toml"])
def test_the_document_shows_the_example(language: str) -> None:
    require_example(DOCUMENT, language, EXAMPLE, others=[SMALLEST])


def test_every_attribute_is_in_the_table() -> None:
    methods = {"weights", "replace_weights"}
    optional = {field.name for field in fields(FrameworkSpec)} - {"name", "target", "config_model", "api"}
    assert first_column(DOCUMENT) == declared_attributes(FrameworkCompliance) | methods | optional
