"""A newcomer who types what docs/start.md says succeeds."""

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

from det_core import get_cluster_info
from det_core.tracking import open_store
from tests.testing.documents import snippets, write_named_files
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


def stop_after_a_checkpoint(line: str, trial_id: int, number: signal.Signals) -> None:
    """Run a line, and send it a signal as soon as its trial has saved a checkpoint."""
    with subprocess.Popen(shlex.split(line), stdout=subprocess.DEVNULL) as process, open_store() as store:
        try:
            wait_for(lambda: [row for row in store.checkpoints() if row.trial_id == trial_id and row.steps_completed])
        finally:
            process.send_signal(number)


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_newcomer_succeeds(type_in: Callable[[str], str], tmp_path: Path) -> None:
    write_named_files(PAGE, tmp_path)  # "python" and "yaml"
    search = tmp_path / "search.yaml"
    search.write_text(search.read_text().replace("max_trials: 8", "max_trials: 4"))
    blocks = [block.replace("epochs: 500", "epochs: 40") for block in snippets(PAGE, "bash")]
    project, install, data, train, look, long, resume, long_again, compare, search, trials, predict = blocks
    assert "mkdir" in project and "pip install" in install
    said = type_in(data) + type_in(train) + type_in(look)
    stop_after_a_checkpoint(long, 2, signal.SIGINT)
    said += type_in(resume)
    stop_after_a_checkpoint(long_again.partition(" >")[0], 3, signal.SIGKILL)
    compared = type_in(compare)
    second, third = re.findall(r"^[23]( +COMPLETED .*)", compared, re.MULTILINE)
    assert second == third
    said += compared + type_in(search) + type_in(trials) + type_in(predict)
    shown = shape_of("\n".join(snippets(PAGE, "text")))
    assert shown - shape_of(said) == set()
    assert 150 < float(said.rpartition("predicted price:")[2]) < 210
