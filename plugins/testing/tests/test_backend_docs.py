"""The example in docs/backends.md works. The backend is registered, starts workers, and passes the suite."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import test_ring
from det_testing.backend import BackendCompliance

from plugins.testing.tests.document_parts import declared_attributes, first_column, require_example, snippets
from plugins.testing.tests.plugin_sites import plugin_environment, run_module

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "backend_plugin"
DOCUMENT = ROOT / "docs" / "backends.md"
(CONFIG,) = snippets(DOCUMENT, "yaml")
SMALLEST, *_ = snippets(DOCUMENT, "python")

EXPERIMENT = "entrypoint: m:T\nsearcher: {name: single, metric: loss, max_length: {batches: 1}}\n" + CONFIG
SCRIPT = """
from det_core import core
from det_core.launch import backends
with core.init(distributed=backends.connect_workers()) as context:
    print("one of", context.distributed.size)
"""


@pytest.mark.integration
@pytest.mark.slow
class TestExample(test_ring.TestRing):
    pass


@pytest.mark.integration
@pytest.mark.usefixtures("registered")
@pytest.mark.slow
def test_a_config_selects_the_backend_and_the_doctor_starts_it(tmp_path: Path) -> None:
    (tmp_path / "const.yaml").write_text(EXPERIMENT)
    told = run_module(tmp_path, "det_core.cli", "doctor", "const.yaml")
    assert told.endswith("exit code 0"), told
    assert re.search(r"^rehearsal +ok +ring: rank 0 on \S+, rank 1 on \S+$", told, re.MULTILINE), told


@pytest.mark.integration
@pytest.mark.usefixtures("registered")
def test_the_backend_is_listed_and_starts_a_script_from_the_command_line(
    det: Callable[..., str], tmp_path: Path
) -> None:
    assert "backend ring" in det("plugins", "list")
    assert det("plugins", "check", "det-ring").endswith("exit code 0")
    (tmp_path / "train.py").write_text(SCRIPT)
    told = run_module(tmp_path, "det_core.launch", "ring", "--slots=2", "--", "train.py")
    assert told.endswith("exit code 0"), told
    assert re.findall(r"^\[rank=\d\] one of 2$", told, re.MULTILINE) != []


@pytest.mark.integration
@pytest.mark.slow
def test_the_smallest_backend_starts_a_script(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    environment = plugin_environment(tmp_path / "site", "det_smallest")
    (tmp_path / "site" / "det_smallest.py").write_text(SMALLEST)
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "det_core.launch", "smallest", "--slots=2", "--", "train.py"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stderr
    assert sorted(re.findall(r"^\[rank=\d\] one of 2$", ran.stdout, re.MULTILINE)) == [
        "[rank=0] one of 2",
        "[rank=1] one of 2",
    ]


@pytest.mark.parametrize("language", ["python", "toml"])
def test_the_document_shows_the_example(language: str) -> None:
    require_example(DOCUMENT, language, EXAMPLE, others=[SMALLEST])


def test_every_attribute_is_in_the_table() -> None:
    assert first_column(DOCUMENT) == declared_attributes(BackendCompliance)
