"""Command lines of docs/cli.md that need only a tracking store run. test_pages.py parses all of them."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

from det_core.launch.context_archive import pack_context_dir

from .conftest import Det, Record, disable_plugins_except

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
NOT_RUN = (
    *("run", "preview-search", "tensorboard", "pause", "cancel", "kill", "resume", "wait", "create", "continue"),
    *("login", "logout", "-m"),
)
"""Words of the command lines that are not run, because they start, stop or wait for something, or need a server."""


def lines() -> list[list[str]]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    written = (line.partition("#")[0] for language, code in fenced if not language for line in code.splitlines())
    commands = (part.partition(">")[0].strip() for line in written for part in line.split("·"))
    return [shlex.split(command.removeprefix("det ")) for command in commands if command]


@pytest.mark.integration
def test_lines_that_need_only_a_tracking_store_run(
    det: Det, trained: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    disable_plugins_except(monkeypatch, "det-core")
    (tmp_path / "code").mkdir()
    trained.store.create_experiment(config={}, model_definition=pack_context_dir(tmp_path / "code"))
    (tmp_path / "code").rmdir()
    ran = []
    for argv in lines():
        if set(argv) & set(NOT_RUN) or ("plot" in argv and find_spec("matplotlib") is None):
            continue
        known = {
            "3": "2" if {"download-model-def", "delete"} & set(argv) else "1",
            "17": "1",
            "UUID": "best-one",
            "det-torch": "det-core",
        }
        words = [known.get(word, word) for word in argv]
        result = det(*words, *(["--yes"] if {"rm", "delete"} & set(words) else []))
        assert result.code == 0, (words, result.err)
        ran.append(words[:2])
    assert len(ran) >= 20
