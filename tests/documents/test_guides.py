"""The code of the guides runs in the directory of docs/start.md, each page in a copy of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from det_core.cli import main
from det_core.config import parse_config
from plugins.testing.tests.document_parts import snippets, write_named_files

from .page_runner import run_shell

DOCS = Path(__file__).parents[2] / "docs"
START = DOCS / "start.md"
GUIDES = (
    "train.md",
    "loops.md",
    "data.md",
    "metrics.md",
    "optimize.md",
    "averages.md",
    "resume.md",
    "distribute.md",
    "search.md",
    "storage.md",
    "debug.md",
    "notebooks.md",
    "profile.md",
    "migrate.md",
)
PAGES = {name: DOCS / "guides" / name for name in GUIDES}
NOT_RUN = re.compile(
    r" [34]\b|slots.yaml$| resume |det run search|create \S+ \.$|tensorboard|plugins check|pdb|torchrun"
    r"|--hosts|uninstall|openssl|gc --orphans"
)
"""Lines that wait for a person, need several hosts or GPUs, or are run by the test of the start page."""
CONFIGS = [
    pytest.param(code, id=f"{name}-{number}")
    for name, page in PAGES.items()
    for number, code in enumerate(snippets(page, "yaml"))
]


def programs(name: str) -> list[str]:
    """Return the Python snippets of a guide that are no files."""
    return [code for code in snippets(PAGES[name], "python") if not re.match(r"# \w+\.py\n", code)]


def commands(page: Path) -> list[str]:
    """Return the lines of all Bash blocks of a page, without comments."""
    text = "\n".join(re.findall(r"^ *```bash\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE))
    return [command for line in text.splitlines() if (command := line.partition(" #")[0].strip())]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the files of the start page and of all guides, and with an experiment in ``home``."""
    project = tmp_path_factory.mktemp("houses")
    for page in (START, *PAGES.values()):
        write_named_files(page, project)
    for file in ("const.yaml", "slots.yaml"):
        shorter = re.sub(r"max_length: {epochs: \d+}", "max_length: {epochs: 2}", (project / file).read_text())
        (project / file).write_text(shorter)
    (project / "search.yaml").write_text(snippets(PAGES["search.md"], "yaml")[0])
    subprocess.run([sys.executable, "make_data.py"], cwd=project, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DET_HOME", str(project / "home"))
        assert main(["run", str(project / "const.yaml")]) == 0
    return project


@pytest.fixture
def work(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a copy of the project."""
    work = shutil.copytree(project, tmp_path / "houses")
    monkeypatch.setenv("DET_HOME", str(work / "home"))
    monkeypatch.setenv("DET_SOURCE", str(DOCS.parent))
    monkeypatch.chdir(work)
    return work


@pytest.mark.parametrize("code", CONFIGS)
def test_every_config_is_valid(code: str) -> None:
    """Parts of configs are completed with the config of the start page."""
    start: dict[str, Any] = yaml.safe_load(snippets(START, "yaml")[0])
    part: Mapping[str, Any] = yaml.safe_load(code)
    assert parse_config(part if "entrypoint" in part else {**start, **part}).searcher.metric == "validation_error"


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in GUIDES if programs(name)])
def test_the_programs_of_a_guide_run(name: str, work: Path) -> None:
    """The snippets of a page run one after another, as in a notebook. Commands run the files that it names."""
    (work / "page.py").write_text("\n".join(programs(name)))
    ran = subprocess.run([sys.executable, "page.py"], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in GUIDES if name != "notebooks.md"])
def test_the_commands_of_a_guide_run(name: str, work: Path) -> None:
    """Each command that no earlier page has succeeds, and the page shows lines that they print."""
    earlier = [START, *(PAGES[guide] for guide in GUIDES[: GUIDES.index(name)])]
    ran = {line for page in earlier for line in commands(page)}
    ran -= {line for line in ran if "search.yaml" in line}  # the start page has another file with this name
    run = [line for line in commands(PAGES[name]) if line not in ran and not NOT_RUN.search(line)]
    assert run
    said = run_shell("\n".join(run), work, 400)
    shown = [line.strip() for text in snippets(PAGES[name], "text") for line in text.splitlines()]
    checked = {"debug.md", "search.md", "storage.md"}
    assert name not in checked or all(line in said for line in shown), said


@pytest.mark.integration
@pytest.mark.slow
def test_the_trial_with_its_own_step_learns(work: Path, capfd: pytest.CaptureFixture[str]) -> None:
    changes = ("entrypoint=own_step:OwnStepTrial", "searcher.max_length={epochs: 4}")
    assert main(["run", "const.yaml", *(word for change in changes for word in ("--config", change))]) == 0
    best = re.search(r"best validation_error=([\d.]+)", capfd.readouterr().out)
    assert best and float(best[1]) < 40
