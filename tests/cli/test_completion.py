"""Completion of command lines, in this process and in shells."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from det_core.cli import main

from .conftest import Det, Install, Record, command_plugin

Complete = Callable[[str], list[str]]


@pytest.fixture
def complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Complete:
    """Return a function that completes the words after ``det`` as a shell does, and returns the sorted candidates."""
    monkeypatch.chdir(tmp_path)
    fdopen = os.fdopen

    def complete(words: str) -> list[str]:
        line = f"det {words}"
        shell = {"_ARGCOMPLETE_SUPPRESS_SPACE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line))}
        streams = {8: io.StringIO(), 9: io.StringIO()}  # the shell's, for candidates and for debugging
        with monkeypatch.context() as patch, pytest.raises(SystemExit):
            patch.setattr(os, "fdopen", lambda descriptor, *rest: streams.get(descriptor) or fdopen(descriptor, *rest))
            for name, value in {"_ARGCOMPLETE": "1", **shell}.items():
                patch.setenv(name, value)
            sys.exit(main([]))
        assert capsys.readouterr() == ("", "")
        return sorted(filter(None, streams[8].getvalue().split("\v")))

    return complete


CANDIDATES = {
    "experi": "experiment",
    "e de": "delete describe",
    "experiment label ": "add list remove",
    "experiment describe ": "1 2",
    "experiment describe 2": "2",
    "trial logs ": "1",
    "tensorboard 1 2 ": "1 2",
    "tensorboard -t ": "1",
    "checkpoint download b": "best-one",
    "checkpoint rm best-one l": "last-one",
    "checkpoint list --tr": "--trial",
    "checkpoint list --trial ": "1",
    "e list --limit 3 --state co": "",
    "e list --limit 3 --state CO": "COMPLETED",
    "e trials 1 --sort-by b": "batches best",
    "run co": "const.yaml",
    "nonsense --json ": "",
    "completion ba": "bash",
    "plugins new st": "storage",
}
"""Words after ``det`` mapped to the candidates for the last of them."""


def test_candidates_complete_the_last_word(complete: Complete, trained: Record) -> None:
    trained.store.create_experiment(config={})
    Path("const.yaml").touch()
    assert {line: " ".join(complete(line)) for line in CANDIDATES} == CANDIDATES


def test_all_commands_are_offered_without_aliases(complete: Complete) -> None:
    words = complete("")
    assert {"run", "experiment", "trial", "checkpoint", "tensorboard", "completion"} <= set(words)
    assert min(map(len, words)) > 2


def test_an_unreadable_database_prints_no_error(complete: Complete, det_home: Path) -> None:
    det_home.mkdir()
    (det_home / "det.db").write_bytes(b"no database" * 1000)
    assert complete("experiment describe ") == []


def test_commands_of_plugins_are_completed(complete: Complete, install: Install) -> None:
    specs = command_plugin("name='launchpad', target='det_pad:configure', help='x'")
    install(
        "det-pad", specs + "\ndef configure(parser):\n    parser.add_argument('--colour', choices=['red', 'blue'])\n"
    )
    assert complete("launch") == ["launchpad"]
    assert complete("launchpad --colour ") == ["blue", "red"]


BASH = """
    eval "$(det completion bash)"
    ask() { COMP_LINE="$1" COMP_POINT=${#1}; _python_argcomplete det; printf "%s\n" "${COMPREPLY[@]}"; }
    ask "det experiment des"; ask "det checkpoint download "; ask "det run co"
"""
ZSH = """
    autoload -U compinit; compinit -u -D
    eval "$(det completion zsh)"
    _describe() { print -l "${(P@)2}"; }
    ask() { BUFFER=$1; CURSOR=${#1}; words=(${=1}); _python_argcomplete; }
    ask "det experiment des"; ask "det checkpoint download "; ask "det run co"
"""
FISH = """
    det completion fish | source
    complete -C "det experiment des"; complete -C "det checkpoint download "; complete -C "det run co"
"""


@pytest.mark.integration
@pytest.mark.parametrize(
    ("command", "script", "expected"),
    [
        (
            ["bash", "-c"],
            BASH,
            [
                "describe",
                "best-one",
                "last-one",
                "const.yaml",
            ],
        ),
        (
            ["zsh", "-fc"],
            ZSH,
            [
                "describe:show an experiment with its trials and checkpoints",
                "best-one:",
                "last-one:",
                "const.yaml:",
            ],
        ),
        (
            ["fish", "--no-config", "-c"],
            FISH,
            ["describe\tshow an experiment with its trials and checkpoints", "best-one", "last-one", "const.yaml"],
        ),
    ],
    ids=["bash", "zsh", "fish"],
)
def test_shells_complete(trained: Record, tmp_path: Path, command: list[str], script: str, expected: list[str]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    (tmp_path / "const.yaml").touch()
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    run = subprocess.run(
        [*command, script], capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=60, check=True
    )
    assert run.stderr == ""
    assert [line.strip() for line in run.stdout.splitlines()] == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(det: Det, shell: str) -> None:
    assert f"det completion {shell}" in det("completion", shell).out
