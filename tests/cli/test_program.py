"""Dispatch of arguments to commands, and of errors to exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import det_core
from det_core.cli import main

from .conftest import Det, Install, Record, command_plugin


def test_version_is_printed(det: Det) -> None:
    result = det("--version")
    assert (result.code, result.out) == (0, f"det {det_core.__version__}\n")


def test_help_lists_every_command(det: Det) -> None:
    result = det("--help")
    assert result.code == 0
    assert all(name in result.out for name in ("run", "experiment (e)", "trial (t)", "checkpoint (c)", "plugins"))


@pytest.mark.parametrize("alias", ["e", "experiment"])
def test_a_command_answers_to_its_alias(det: Det, alias: str) -> None:
    assert det(alias, "list", "--json").json == []


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["chekpoint"], 2, "did you mean 'checkpoint'?"),
        (["master"], 2, "det server, of det-server"),
        (["experiment", "lst"], 2, "invalid choice"),
        (["experiment", "describe"], 2, "EXPERIMENT_ID"),
        (["experiment", "describe", "x"], 2, "invalid int value"),
        (["experiment", "describe", "7"], 1, "experiment 7"),
        (["experiment", "logs", "7"], 1, "experiment 7"),
        (["experiment", "wait", "7"], 1, "experiment 7"),
        (["experiment", "pause", "7"], 1, "experiment 7"),
        (["experiment", "resume", "7"], 1, "experiment 7"),
        (["trial", "describe", "7"], 1, "trial 7"),
        (["trial", "logs", "7"], 1, "trial 7"),
        (["checkpoint", "list", "7"], 1, "experiment 7"),
        (["checkpoint", "describe", "nope"], 1, "nope"),
        (["checkpoint", "download", "nope"], 1, "nope"),
        (["plugins", "show", "det-cor"], 1, "did you mean 'det-core'?"),
        (["run", "nowhere.yaml"], 2, "nowhere.yaml"),
        (["experiment", "create", "nowhere.yaml", "."], 2, "nowhere.yaml"),
    ],
)
def test_errors_have_a_message_and_an_exit_code(
    det: Det, argv: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = det(*argv)
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith("det: error: ")
    assert message in result.err
    assert "Traceback" not in result.err

    result = det(*argv, "--json")
    assert result.code == code
    assert message in result.json["error"]


@pytest.mark.parametrize(("argv", "listed"), [([], "checkpoint (c)"), (["experiment"], "describe")])
def test_a_group_alone_lists_its_commands(det: Det, argv: list[str], listed: str) -> None:
    result = det(*argv)
    assert (result.code, result.out) == (2, "")
    assert "no command given" in result.err
    assert listed in result.err


def test_a_context_directory_that_does_not_exist_leaves_no_experiment(det: Det, tmp_path: Path) -> None:
    config = tmp_path / "const.yaml"
    config.write_text("entrypoint: model_def:T\nsearcher: {name: single, metric: loss, max_length: {batches: 1}}\n")
    result = det("experiment", "create", config, tmp_path / "nowhere")
    assert result.code == 1
    assert "nowhere' does not exist" in result.err
    assert det("experiment", "list", "--json").json == []


def test_an_unusable_checkpoint_storage_leaves_no_experiment(det: Det, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = tmp_path / "const.yaml"
    config.write_text(
        f"entrypoint: 'true'\nsearcher: {{name: single, metric: loss}}\n"
        f"checkpoint_storage: {{type: directory, container_path: {tmp_path / 'file' / 'inside'}}}\n"
    )
    for command in ("run", "experiment create"):
        result = det(*command.split(), config, tmp_path)
        assert (result.code, str(tmp_path / "file") in result.err) == (1, True)
    assert det("experiment", "list", "--json").json == []


def test_debug_shows_the_traceback(det: Det, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_DEBUG", "1")
    assert "Traceback" in det("trial", "describe", 7).err


def test_a_command_of_a_plugin_is_listed_and_runs(det: Det, install: Install) -> None:
    code = command_plugin("name='greet', target='det_greet:configure', help='100% polite'")
    install(
        "det-greet", f"{code}\ndef configure(parser):\n    parser.set_defaults(run=lambda args: print('hello') or 3)\n"
    )
    assert "100% polite" in det("--help").out
    result = det("greet")
    assert (result.code, result.out) == (3, "hello\n")


def test_a_broken_command_breaks_only_itself(det: Det, install: Install) -> None:
    specs = ("name='gone', target='det_gone:missing'", "name='raises', target='det_gone:raises'")
    install("det-gone", command_plugin(*specs) + "\ndef raises(parser):\n    raise ValueError('not today')\n")
    assert det("--help").code == 0
    assert det("experiment", "list").code == 0
    result = det("gone")
    assert (result.code, "det-gone 1.0" in result.err) == (1, True)
    assert "not today" in det("raises").err


def test_a_command_of_a_plugin_may_have_the_name_of_an_alias(det: Det, install: Install) -> None:
    code = command_plugin("name='t', target='det_tea:configure', help='make tea'")
    install("det-tea", f"{code}\ndef configure(parser):\n    parser.set_defaults(run=lambda args: print('tea') or 0)\n")
    assert det("t").out == "tea\n"
    assert det("trial", "describe", 7).code == 1


def test_two_providers_of_a_command_are_named(det: Det, install: Install) -> None:
    for name in ("det-one", "det-two"):
        install(name, command_plugin("name='same', target='os:path'"))
    result = det("same")
    assert result.code == 2
    assert "det-one 1.0" in result.err
    assert "det-two 1.0" in result.err


def test_a_command_of_a_plugin_may_exit(det: Det, install: Install) -> None:
    """The text that it passes to ``sys.exit`` is printed, and its exit code is used."""
    plugin = command_plugin("name='leave', target='det_leave:configure'")
    install(
        "det-leave", f"{plugin}\ndef configure(parser):\n    parser.set_defaults(run=lambda args: sys.exit(CODE))\n"
    )
    det_leave: Any = import_module("det_leave")
    det_leave.sys = sys
    for code, expected, said in ((None, 0, ""), (3, 3, ""), ("no licence", 1, "det: error: no licence\n")):
        det_leave.CODE = code
        result = det("leave")
        assert (result.code, result.err) == (expected, said)


def test_a_command_that_exits_while_it_is_set_up_is_broken(det: Det, install: Install) -> None:
    plugin = command_plugin("name='quit', target='det_quit:configure'")
    install("det-quit", f"{plugin}\ndef configure(parser):\n    raise SystemExit\n")
    result = det("quit")
    assert result.code == 1
    assert "command 'quit' (det_quit:configure) failed to set up" in result.err
    assert det("experiment", "list").code == 0


@pytest.mark.parametrize("closed", ["stdin", "stdout", "stderr"])
@pytest.mark.parametrize("option", [[], ["--json"]])
def test_a_closed_stream_is_no_error(det: Det, monkeypatch: pytest.MonkeyPatch, closed: str, option: list[str]) -> None:
    """Otherwise commands would end with a traceback after their work, or when they ask for confirmation."""
    monkeypatch.setattr(sys, closed, None)
    try:
        assert main(["experiment", "list", *option]) == 0
        assert main(["experiment", "delete", "7"]) in (1, 2)
    finally:
        getattr(sys, closed).close()


@pytest.mark.integration
@pytest.mark.parametrize("option", ["", "--json"])
def test_a_full_disk_is_reported_on_the_other_stream(det_home: Path, option: str) -> None:
    with Path("/dev/full").open("w") as full:
        process = start("experiment", "list", *option.split(), stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.splitlines()[0] == "det: error: [Errno 28] No space left on device"
    assert "Traceback" not in err


def start(*argv: object, **options: object) -> subprocess.Popen[str]:
    """Start a command with the buffers of a shell's user, also where ``PYTHONUNBUFFERED`` is set."""
    command = [sys.executable, "-m", "det_core.cli", *map(str, argv)]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen(command, text=True, stderr=subprocess.PIPE, env=variables, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.integration
def test_a_closed_pipe_is_no_error(record: Record) -> None:
    record.log(*(f"line {number} {'-' * 1000}" for number in range(200)))
    read, write = os.pipe()
    process = start("trial", "logs", 1, stdout=write)
    os.close(write)
    os.read(read, 10)
    os.close(read)
    _, err = process.communicate(timeout=100)
    assert (process.returncode, err) == (141, "")


@pytest.mark.integration
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_set_the_exit_code(record: Record, number: signal.Signals, code: int) -> None:
    record.store.acquire_lease(record.experiment.id, "somebody", seconds=60)
    record.log("it runs")
    process = start("trial", "logs", 1, "--follow", stdout=subprocess.PIPE)
    assert process.stdout
    assert "it runs" in process.stdout.readline()
    process.send_signal(number)
    _, err = process.communicate(timeout=100)
    assert (process.returncode, err) == (code, "")
