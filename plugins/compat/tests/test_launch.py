"""Arguments of ``python3 -m determined.launch.BACKEND``."""

from __future__ import annotations

import runpy
import sys

import pytest
from determined.launch import _command

PYTHON = sys.executable
WORKER = [PYTHON, "-m", "det_core.launch.worker"]


@pytest.mark.parametrize(
    ("argv", "worker"),
    [
        ("python3 train.py --lr 1 -- x", [PYTHON, "train.py", "--lr", "1", "--", "x"]),
        ("/usr/bin/python3.8 -u train.py", [PYTHON, "-u", "train.py"]),
        ("-- python train.py", [PYTHON, "train.py"]),
        ("bash run.sh", ["bash", "run.sh"]),
        ("--trial model_def:Trial", [*WORKER, "model_def:Trial"]),
        ("-- --trial model_def:Trial", [*WORKER, "model_def:Trial"]),
        ("--trial=model_def:Trial", [*WORKER, "model_def:Trial"]),
        ("--autohorovod --trial model_def:Trial", [*WORKER, "model_def:Trial"]),
    ],
)
def test_arguments_become_the_command_of_the_workers(
    argv: str, worker: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    monkeypatch.setattr(_command, "start_workers", lambda name, worker: started.append((name, worker)) or 0)
    assert _command.run_launcher("horovod", argv.split()) == 0
    assert started == [("horovod", worker)]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("", "expected --trial MODULE:CLASS, or a program"),
        ("--trial model_def:Trial python3 train.py", "expected --trial MODULE:CLASS, or a program"),
        ("--nnodes=2 --max_restarts=1 -- python3 train.py", "--nnodes=2 --max_restarts=1: det starts the launcher of"),
        ("--autohorovod -- --trial a:B", "--autohorovod: det starts the launcher of"),
        ("--autohorovod --trial a:B", "unrecognized arguments: --autohorovod"),
    ],
)
def test_errors_name_wrong_arguments(argv: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        _command.run_launcher("deepspeed", argv.split())
    assert stop.value.code == 2
    assert words in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("backend", ["torch_distributed", "horovod", "deepspeed"])
def test_each_program_prints_its_help(
    backend: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["program", "--help"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module(f"determined.launch.{backend}", run_name="__main__")
    assert stop.value.code == 0
    assert f"usage: python3 -m determined.launch.{backend} [--]" in capsys.readouterr().out
