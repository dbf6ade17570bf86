"""Power cuts at every moment of a script, simulated from the recorded order of its calls.

The calls are those that change files, such as write, fsync and unlink. Every prefix of them is checked in three cases.
In the first, everything has reached the medium. In the second, this is true of names, but of contents only if the file
was synced. In the third, it is true of names only if their directory was synced, too.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from det_testing.requirements import skip_or_fail_in_ci

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SCRIPT = """
import os, sys, time
from det_core import core
from det_core.tracking import _sqlite

root = os.environ["DET_RECORD_ROOT"]
_sqlite.SYNC_INTERVAL = 0.1
marks = os.open(f"{root}/marks", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def mark(*words):
    os.write(marks, (" ".join(map(str, words)) + "\\n").encode())

saved = []
with core.init(checkpoint_storage=f"{root}/checkpoints") as context:
    mark("started")
    for step in range(1, 4):
        context.train.report_training_metrics(step, {"loss": step})
        with context.checkpoint.store_path({"steps_completed": step}) as (path, uuid):
            for name in "ab":
                (path / name).write_bytes(f"{step}{name}".encode() * 1000)
        mark("saved", uuid)
        saved.append(uuid)
        if step > 1:
            context.checkpoint.delete(saved[-2])
            mark("deleted", saved[-2])
    context.train.report_training_metrics(10, {"loss": 10})
    context.train.flush()
    time.sleep(1.0)  # stands for batches that take long
    mark("slept")
mark("ended")
"""


@dataclass
class Node:
    """File with its contents now and on the medium, or a directory, whose contents are None."""

    now: bytearray | None
    synced: bytes = b""


@dataclass
class Disk:
    """State of a disk after some calls."""

    names: dict[str, Node] = field(default_factory=dict)
    durable_names: dict[str, Node] = field(default_factory=dict)

    def apply(self, call: str, path: str, offset: int, data: bytes) -> None:
        node = self.names.get(path)
        contents = node.now if node else None
        if call in ("create", "mkdir"):
            self.names[path] = Node(bytearray() if call == "create" else None)
        elif call == "remove":
            self.names = {name: node for name, node in self.names.items() if name != path}
        elif call == "rename":
            self.names[data.decode()] = self.names.pop(path)
        elif call == "sync":
            self._sync(path)
        elif contents is not None:
            contents.extend(bytes(max(offset - len(contents), 0)))
            contents[offset : offset + len(data) if call == "write" else None] = data

    def _sync(self, path: str) -> None:
        if (node := self.names.get(path)) is None or node.now is None:
            kept = {name: node for name, node in self.durable_names.items() if parent(name) != path}
            self.durable_names = kept | {n: node for n, node in self.names.items() if parent(n) == path}
        else:
            node.synced = bytes(node.now)

    def found(self, root: str) -> dict[str, dict[str, bytes | None]]:
        """Return the contents of each file after a power cut, by case and path. Those of a directory are None."""
        files = {name: node for name, node in self.names.items() if not name.endswith("-shm")}  # never read again
        old = {name: node for name, node in self.durable_names.items() if not name.endswith("-shm")}

        def reached(name: str) -> bool:
            return (above := parent(name)) == root or (above in old and reached(above))

        return {
            "everything": {name: None if node.now is None else bytes(node.now) for name, node in files.items()},
            "names": {name: None if node.now is None else node.synced for name, node in files.items()},
            "synced": {name: None if node.now is None else node.synced for name, node in old.items() if reached(name)},
        }


def parent(path: str) -> str:
    return path.rpartition("/")[0]


def calls(record: Path) -> Iterator[tuple[str, str, int, bytes]]:
    with record.open("rb") as file:
        while head := file.readline():
            name, offset, path, size = head.decode().split()
            yield name, file.read(int(path)).decode(), int(offset), file.read(int(size))


def write_tree(place: Path, root: str, tree: dict[str, bytes | None]) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for name, contents in sorted(tree.items()):
        target = place / os.path.relpath(name, root)
        if contents is None:
            target.mkdir()
        else:
            target.write_bytes(contents)


def rows(place: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(place / "det.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'checkpoints'").fetchone():
            return []
        return connection.execute(query).fetchall()


def check_state(place: Path, marks: list[list[str]]) -> None:
    """Check the state after a power cut.

    Args:
        place: copy of the directory after the power cut.
        marks: steps that the script had completed by then, as words.
    """
    recorded = rows(place, "SELECT uuid, state, steps_completed, resources FROM checkpoints")
    states = {uuid: state for uuid, state, _, _ in recorded}
    reported = [json.loads(text)["loss"] for (text,) in rows(place, "SELECT metrics FROM metrics")]
    for uuid, state, steps, resources in recorded:
        if state == "COMPLETED":
            for name, size in json.loads(resources).items():
                file = place / "checkpoints" / uuid / name
                assert file.stat().st_size == size
                assert name not in ("a", "b") or file.read_bytes() == f"{steps}{name}".encode() * 1000
            assert set(range(1, steps + 1)) <= set(reported)
    of_checkpoints = (directory.name for directory in (place / "checkpoints").iterdir() if "-" in directory.name)
    assert set(of_checkpoints) <= states.keys()  # every directory has a row
    deleted = {mark[1] for mark in marks if mark[0] == "deleted"}
    for word, *uuid in marks:
        if word == "started":
            assert rows(place, "SELECT state FROM trials") in ([("ACTIVE",)], [("COMPLETED",)])
        elif word == "saved":
            assert states[uuid[0]] in ("COMPLETED", "DELETED")
            assert uuid[0] not in deleted or states[uuid[0]] == "DELETED"
        elif word == "slept":
            assert 10 in reported
        elif word == "ended":
            assert rows(place, "SELECT state FROM experiments") == [("COMPLETED",)]


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the library that records calls, and return its path for LD_PRELOAD."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        skip_or_fail_in_ci("no C compiler, or not Linux")
    library = tmp_path_factory.mktemp("recorder") / "recorder.so"
    source = Path(__file__).with_name("recorder.c")
    subprocess.run([str(compiler), "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


def test_the_store_is_consistent_after_a_power_cut_at_any_moment(recorder: Path, tmp_path: Path) -> None:
    root, record, place = tmp_path / "root", tmp_path / "record", tmp_path / "found"
    (root / "checkpoints").mkdir(parents=True)  # det need not sync the name of its own directory
    environment = {"LD_PRELOAD": recorder, "DET_RECORD": record, "DET_RECORD_ROOT": root, "DET_HOME": root}
    subprocess.run(
        [sys.executable, "-c", SCRIPT],
        check=True,
        env=os.environ | {key: str(value) for key, value in environment.items()},
    )
    existing = {f"{root}/checkpoints": Node(None)}
    disk = Disk(dict(existing), dict(existing))
    seen: dict[str, Any] = {}
    marks: list[list[str]] = []
    recorded = list(calls(record))
    for number, (call, path, offset, data) in enumerate(recorded):
        disk.apply(call, path, offset, data)
        if path.endswith("/marks"):
            marks = [line.split() for line in bytes(disk.names[path].now or b"").decode().splitlines()]
        for case, tree in disk.found(str(root)).items():
            whole = {name: contents for name, contents in tree.items() if not name.endswith("/marks")}
            if seen.get(case) == (whole, marks):
                continue
            seen[case] = (whole, marks)
            write_tree(place, str(root), whole)
            if not (place / "det.db").exists():
                assert not marks
                continue
            try:
                check_state(place, marks)
            except Exception as error:
                raise AssertionError(f"{case}, after call {number} of {len(recorded)}: {call} {path}") from error
    assert [mark[0] for mark in marks][-2:] == ["slept", "ended"]
    really = {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert {name: bytes(node.now) for name, node in disk.names.items() if node.now is not None} == really
