"""The example in docs/backends.md works. The backend is installed, starts workers, and passes the suite."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from det_core.testing.backend import BackendCompliance
from tests.testing.documents import declared_attributes, first_column, require_example, snippets
from tests.testing.installed_examples import Run, install_example
from tests.testing.plugin_sites import plugin_environment

ROOT = Path(__file__).parents[2]
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


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a module next to the example's test and config, with the example installed by pip."""
    files = {"const.yaml": EXPERIMENT, "train.py": SCRIPT}
    return install_example(tmp_path_factory.mktemp("docs"), EXAMPLE, "test_ring.py", files, timeout=240)


@pytest.mark.integration
@pytest.mark.slow
def test_the_backend_passes_the_suite(run: Run) -> None:
    told = run("pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_ring.py")
    assert re.search(r"^\d+ passed in ", told, re.MULTILINE), told


@pytest.mark.integration
@pytest.mark.slow
def test_a_config_selects_the_backend_and_the_doctor_starts_it(run: Run) -> None:
    assert "backend ring" in run("det_core.cli", "plugins", "list")
    told = run("det_core.cli", "doctor", "const.yaml")
    assert told.endswith("exit code 0"), told
    assert re.search(r"^rehearsal +ok +ring: rank 0 on \S+, rank 1 on \S+$", told, re.MULTILINE), told


@pytest.mark.integration
def test_the_backend_starts_a_script_from_the_command_line(run: Run) -> None:
    told = run("det_core.launch", "ring", "--slots=2", "--", "train.py")
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
