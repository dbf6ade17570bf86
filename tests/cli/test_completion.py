"""Completion of command lines, by ``det completion words`` and in bash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Det, Install, Record, command_plugin


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("experi", "experiment"),
        ("e de", "delete describe"),
        ("experiment label ", "add list remove"),
        ("experiment describe ", "1 2"),
        ("experiment describe 2", "2"),
        ("trial logs ", "1"),
        ("tensorboard 1 2 ", "1 2"),
        ("tensorboard -t ", "1"),
        ("checkpoint download b", "best-one"),
        ("checkpoint rm best-one l", "last-one"),
        ("checkpoint list --tr", "--trial"),
        ("checkpoint list --trial ", "1"),
        ("e list --limit 3 --state co", ""),
        ("e list --limit 3 --state CO", "COMPLETED"),
        ("e trials 1 --sort-by b", "batches best"),
        ("run ", ""),
        ("nonsense --json ", ""),
        ("completion ba", "bash"),
    ],
)
def test_candidates_complete_the_last_word(det: Det, trained: Record, line: str, expected: str) -> None:
    trained.store.create_experiment(config={})
    result = det("completion", "words", "--", *line.split(" "))
    assert (result.code, result.out.split(), result.err) == (0, expected.split(), "")


def test_all_commands_are_offered_without_aliases(det: Det) -> None:
    words = det("completion", "words", "--", "").out.split()
    assert {"run", "experiment", "trial", "checkpoint", "tensorboard", "completion"} <= set(words)
    assert min(map(len, words)) > 2


def test_an_unreadable_database_prints_no_error(det: Det, det_home: Path) -> None:
    det_home.mkdir()
    (det_home / "det.db").write_bytes(b"no database" * 1000)
    result = det("completion", "words", "--", "experiment", "describe", "")
    assert (result.code, result.out, result.err) == (0, "", "")


def test_commands_of_plugins_are_completed(det: Det, install: Install) -> None:
    specs = command_plugin("name='launchpad', target='det_pad:configure', help='x'")
    install(
        "det-pad", specs + "\ndef configure(parser):\n    parser.add_argument('--colour', choices=['red', 'blue'])\n"
    )
    assert det("completion", "words", "--", "launch").out == "launchpad\n"
    assert det("completion", "words", "--", "launchpad", "--colour", "").out == "blue\nred\n"


@pytest.mark.integration
def test_bash_completes(trained: Record, tmp_path: Path) -> None:
    (tmp_path / "const.yaml").touch()
    script = """
        eval "$(det completion bash)"
        complete -p det
        COMP_WORDS=(det experiment des); COMP_CWORD=2; _det; echo "${COMPREPLY[@]}"
        COMP_WORDS=(det checkpoint download ''); COMP_CWORD=3; _det; echo "${COMPREPLY[@]}"
        COMP_WORDS=(det run co); COMP_CWORD=2; _det; echo "files: ${#COMPREPLY[@]}"
    """
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    run = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=60, check=True
    )
    assert run.stderr == ""
    assert run.stdout.splitlines() == [
        "complete -o default -F _det det",
        "describe",
        "best-one last-one",
        "files: 0",  # so that bash completes const.yaml itself
    ]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(det: Det, shell: str) -> None:
    script = det("completion", shell).out
    assert "det completion words -- " in script
    assert f"det completion {shell}" in script
