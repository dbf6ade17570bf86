"""Processes of a node, and what they find there."""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from det_core.core.failure_notes import DIED, FAILURE_PREFIX
from det_core.errors import LaunchError
from det_core.interfaces.launcher import Cause, Exit, LaunchRequest, Phase
from det_core.launch import node_agent, worker_environment
from det_core.launch.context_archive import EMPTY_CONTEXT
from det_core.launch.node_agent import AllocatedNode, NodeAgent

Start = Callable[..., "tuple[NodeAgent, list[str]]"]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Return a function that starts a shell, and returns its agent and its output."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)

        def start(script: str, **changes: Any) -> tuple[NodeAgent, list[str]]:
            lines: list[str] = []
            values = {
                "key": "k",
                "argv": ["/bin/sh", "-c", script],
                "code": EMPTY_CONTEXT,
                "info": {
                    "cluster.json": {"cluster_id": "c"},
                    "trial.json": {"trial_id": 7, "hparams": {"x": "y" * 100}},
                },
                "slots": 1,
                "log": lambda rank, stream, text: lines.append(f"{rank} {stream} {text}"),
                "call": lambda method, body: b"",
                **changes,
            }
            place = AllocatedNode(name="n", slot_ids=[4], hosts=["chief", "other"], node=1, slot_counts=[2, 1], port=9)
            return NodeAgent(LaunchRequest(**values), place, env={"A": "launcher", "B": "launcher"}), lines

        yield start


def test_processes_find_files_and_variables(start: Start) -> None:
    script = (
        'echo "$A $B $DET_CHIEF_IP $DET_TRIAL_ID $DET_AGENT_ID $DET_SLOT_IDS $PYTHONUNBUFFERED"; cd "$DET_INFO_DIR"; '
        'stat -c "%a %n" *.json secrets secrets/*; cat rendezvous.json'
    )
    agent, lines = start(script, env={"B": "request"}, secrets={"name": "hunter2"})
    with closing(agent):
        assert agent.status().phase is Phase.RUNNING
        assert agent.wait(60) == Exit(code=0)
    assert [line.removeprefix("None stdout ") for line in lines] == [
        "launcher request chief 7 n [4] 1",
        *(f"600 {name}.json" for name in ("cluster", "rendezvous", "trial")),
        "700 secrets",
        "600 secrets/name",
        '{"container_addrs": ["chief", "other"], "container_rank": 1, "container_slot_counts": [2, 1], "port": 9}',
    ]


def test_nothing_is_left_after_the_end(start: Start) -> None:
    inside = Path(tempfile.gettempdir())
    agent, _ = start("sleep 1000; true", secrets={"name": "hunter2"})
    with closing(agent):
        assert [path.name for path in inside.rglob("*") if path.is_socket()] == ["agent.sock"]
        assert {stat.S_IMODE(path.stat().st_mode) for path in inside.iterdir()} == {0o700}
        assert agent.wait(0) is None
        agent.kill()
        assert agent.wait(0) == Exit(code=-9)
    assert list(inside.iterdir()) == []


def test_a_variable_that_is_too_long_is_left_out(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_environment, "_MAX_BYTES", 100)
    agent, lines = start('echo "<$DET_HPARAMS> $DET_TRIAL_ID"')
    with closing(agent):
        assert agent.wait(60) == Exit(code=0)
    assert lines == [
        "None det DET_HPARAMS is too long for an environment variable; use det.get_cluster_info()",
        "None stdout <> 7",
    ]


@pytest.mark.parametrize(
    ("script", "kills", "cause"),
    [
        ("kill -9 $$", 1, Cause.OUT_OF_MEMORY),
        ("exit 137", 1, Cause.OUT_OF_MEMORY),
        (f"echo '{FAILURE_PREFIX}rank 3: {DIED}' >&2; exit 1", 1, Cause.OUT_OF_MEMORY),
        ("exit 1", 1, Cause.WORKERS),
        ("kill -9 $$", 0, Cause.WORKERS),
        ("kill -15 $$", 1, Cause.WORKERS),
    ],
)
def test_a_kill_for_lack_of_memory_is_named(
    start: Start, monkeypatch: pytest.MonkeyPatch, script: str, kills: int, cause: Cause
) -> None:
    """The kernel counts the processes that it kills on this host."""
    counts = iter([5, *[5 + kills] * 100])
    monkeypatch.setattr(node_agent, "count_memory_kills", lambda: next(counts))
    agent, _ = start(script)
    with closing(agent):
        for reader in agent._readers:
            reader.join(60)
        end = agent.wait(60)
    assert end and end.cause is cause
    assert ("lower the batch size" in end.message) is (cause is Cause.OUT_OF_MEMORY)


def test_a_kill_of_long_ago_is_not_the_cause(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another trial of this host may have lacked the memory."""
    monkeypatch.setattr(node_agent, "_KILL_MEMORY", -1.0)
    counts = iter([5])
    monkeypatch.setattr(node_agent, "count_memory_kills", lambda: next(counts, 6))
    agent, _ = start("sleep 1000; true")
    with closing(agent):
        assert agent.wait(0) is agent.wait(0) is None
        agent._processes.kill()
        assert agent.wait(60) == Exit(code=-9)


def test_a_kill_by_the_user_is_no_lack_of_memory(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter(range(100))
    monkeypatch.setattr(node_agent, "count_memory_kills", lambda: next(counts))
    agent, _ = start("sleep 1000; true")
    with closing(agent):
        agent.kill()
        assert agent.wait(0) == Exit(code=-9)


def test_a_launch_that_cannot_start_leaves_nothing(start: Start) -> None:
    with pytest.raises(LaunchError, match="cannot start '/bin/sh': the recorded code cannot be unpacked into"):
        start("true", code=b"no archive")
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


def test_a_slow_log_gets_the_last_lines(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one whose database is locked."""
    monkeypatch.setattr(node_agent, "_CLOSE_SECONDS", 0.1)
    lines: list[str] = []

    def log(rank: int | None, stream: str, text: str) -> None:
        time.sleep(0.01)
        lines.append(text)

    agent, _ = start("seq 50", log=log)
    with closing(agent):
        assert agent.wait(60) == Exit(code=0)
    assert lines[-1] == "50"


def test_processes_hold_what_they_inherit(tmp_path: Path) -> None:
    read, write = os.pipe()
    request = LaunchRequest(
        key="k",
        argv=["/bin/sh", "-c", "sleep 1000; true"],
        code=EMPTY_CONTEXT,
        info={"cluster.json": {}},
        slots=1,
        log=lambda *_: None,
        call=lambda *_: b"",
    )
    with closing(NodeAgent(request, AllocatedNode(name="n", slot_ids=[0]), inherit=[write], parent=tmp_path)) as agent:
        os.close(write)
        os.set_blocking(read, False)
        with pytest.raises(BlockingIOError):
            os.read(read, 1)
        assert len([path for path in tmp_path.iterdir() if "context" in path.name]) == 1
        agent.kill()
        assert os.read(read, 1) == b""
    os.close(read)
