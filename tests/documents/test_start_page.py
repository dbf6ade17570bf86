"""Who types what docs/start.md says succeeds, also with other experiments in the store."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from det_core import core, get_cluster_info
from det_core.tracking import open_store
from plugins.testing.tests.document_parts import snippets, write_named_files
from tests.waiting import wait_for

PAGE = Path(__file__).parents[2] / "docs" / "start.md"


def shape_of(text: str) -> set[str]:
    """Return the lines of an output without what differs between runs: ids, numbers, times and the user's name."""
    shapes = (
        re.sub(r"[\da-f]{8}(-[\da-f]+){4}|\d[-\d.: ]*|(?<=:\d\d  )\w+$", "0 ", line) for line in text.splitlines()
    )
    return {" ".join(shape.split()) for shape in shapes}


@pytest.fixture
def type_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Return a function that runs lines in a shell in an empty directory, and returns their output."""
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DET_INFO_DIR", raising=False)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    get_cluster_info.cache_clear()
    monkeypatch.chdir(tmp_path)

    def run(lines: str) -> str:
        ran = subprocess.run(["bash", "-ec", lines], capture_output=True, text=True, timeout=300)
        assert ran.returncode == 0, f"{lines}{ran.stdout}{ran.stderr}"
        return ran.stdout

    return run


def stop_after_a_checkpoint(line: str, number: signal.Signals) -> str:
    """Run a line, send it a signal as soon as its trial has saved a checkpoint, and return its output."""
    with subprocess.Popen(shlex.split(line), stdout=subprocess.PIPE, text=True) as process, open_store() as store:
        assert process.stdout
        said = process.stdout.readline()
        try:
            created = number_in(said)
            wait_for(lambda: [row for row in store.checkpoints(experiment_id=created) if row.steps_completed])
        finally:
            process.send_signal(number)
        return said + process.stdout.read()


def number_in(said: str) -> int:
    """Return the number of the last experiment that det has created."""
    return int(re.findall(r"^Created experiment (\d+)$", said, re.MULTILINE)[-1])


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_start_page_works_beside_other_experiments(
    type_in: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        with core.init(quiet=True):
            pass
    write_named_files(PAGE, tmp_path)  # "python" and "yaml"
    search = tmp_path / "search.yaml"
    search.write_text(search.read_text().replace("max_trials: 8", "max_trials: 4"))
    blocks = [block.replace("epochs: 500", "epochs: 40") for block in snippets(PAGE, "bash")]
    project, install, data, train, first, look, long, resume, long_again, compare, search, trials, predict = blocks
    assert "mkdir" in project and "pip install" in install

    def keep_number(block: str) -> str:
        """Return the commands of a block below its first line, which keeps the printed number in a variable."""
        assignment, _, commands = block.partition("\n")
        monkeypatch.setenv(assignment.partition("=")[0], str(number_in(said)))
        return commands

    said = type_in(data) + type_in(train)
    keep_number(first)
    said += type_in(look)
    said += stop_after_a_checkpoint(long, signal.SIGINT)
    said += type_in(keep_number(resume))
    (tmp_path / "log.txt").write_text(stop_after_a_checkpoint(long_again.partition(" >")[0], signal.SIGKILL))
    compared = type_in(compare)
    stopped, killed = re.findall(r"^\d( +COMPLETED .*)", compared, re.MULTILINE)
    assert stopped == killed
    said += compared + type_in(search)
    said += type_in(keep_number(trials)) + type_in(predict)
    shown = shape_of("\n".join(snippets(PAGE, "text")))
    assert shown - shape_of(said) == set()
    assert 150 < float(said.rpartition("predicted price:")[2]) < 210
