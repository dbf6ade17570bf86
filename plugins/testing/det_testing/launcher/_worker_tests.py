"""Tests of the code, interpreter, environment and info files that the processes of a launch find."""

from __future__ import annotations

import os
import zlib

from det_core.interfaces.launcher import Phase
from det_testing.launcher.launcher_suite import INFO, Launch, LauncherSuite

_FILES = """
from pathlib import Path
def tree():
    return {str(path): path.stat().st_size for path in sorted(Path().rglob("*")) if path.is_file()}
found = tree()
Path("written").touch()
report([found, os.access("run.sh", os.X_OK), sys.path[0] == os.getcwd()])
"""
_INTERPRETER = """
import subprocess
import det_core
programs = [sys.executable, "python3"]
command = ["-c", "import det_core; print(det_core.__file__)"]
report([subprocess.run([one, *command], capture_output=True, text=True).stdout.strip() for one in programs])
report(det_core.__file__)
"""
_CLUSTER_INFO = """
import det_core
info = det_core.get_cluster_info()
report([info.task_id, info.cluster_id, info.allocation_id, info.trial.hparams, info.trial.config, info.trial.trial_id])
report({
    "agent_id": info.agent_id, "slot_ids": info.slot_ids, "addresses": info.container_addrs,
    "rank": info.container_rank, "counts": info.container_slot_counts,
    "port": info.rendezvous.port if info.rendezvous else None,
})
"""
_ENVIRONMENT = """
names = ["QUOTES", "LINES", "UNICODE", "EMPTY", "PYTHONUNBUFFERED", "DET_TRIAL_ID", "DET_HPARAMS", "DET_CHIEF_IP"]
report({name: os.environ.get(name) for name in names})
"""
_VALUES = {"QUOTES": "a'b\"c $HOME `id` \\ *", "LINES": "one\ntwo\n", "UNICODE": "Grün 😀", "EMPTY": ""}
_SIGNALS = """
masks = dict(line.split(":") for line in open("/proc/self/status") if line.startswith("Sig"))
report([int(masks["SigBlk"], 16), int(masks["SigIgn"], 16)])
"""


class LaunchedWorkerTests(LauncherSuite):
    """Tests that processes find all that they were promised."""

    def test_processes_run_in_their_unpacked_code(self, launch: Launch) -> None:
        """Scripts import and open files next to themselves. What one run writes must not be there for the next."""
        files = {"run.sh": b"#!/bin/sh\n", "package/data.bin": bytes(range(256)), "Grün und 'Blau'.txt": b""}
        for _ in range(2):
            one = launch(_FILES, files=files)
            one.require_code()
            found, is_executable, is_first = one.report()
            assert {name: found.get(name) for name in files} == {name: len(data) for name, data in files.items()}
            assert is_executable, "run.sh has lost its permission to run"
            assert is_first, "the working directory is not that of the code"
            assert "written" not in found, "two launches share one directory"

    def test_python_is_the_interpreter_of_the_node(self, launch: Launch) -> None:
        """`PYTHON` in ``argv`` and a ``python3`` on PATH must import the same det-core."""
        one = launch(_INTERPRETER)
        one.require_code()
        assert set(one.report(0)) == {one.report(1)}

    def test_a_command_need_not_be_python(self, launch: Launch) -> None:
        """Commands are found in the code, on PATH, and by shells."""
        files = {"run.sh": b'#!/bin/sh\necho "$1"\n'}
        for argv in (["./run.sh", "a b\nc"], ["/bin/sh", "-c", "echo 'a b\nc'"], ["echo", "a b\nc"]):
            one = launch(files=files, argv=argv)
            one.require_code()
            assert one.output() == ["a b", "c"]

    def test_the_cluster_info_is_complete(self, launch: Launch) -> None:
        """Trials read their hyperparameters from it, and backends the nodes and slots of the launch."""
        one = launch(_CLUSTER_INFO, slots=self.slots)
        one.require_code()
        nodes = {node["rank"]: node for node in one.reports() if isinstance(node, dict)}
        cluster, trial = INFO["cluster.json"], INFO["trial.json"]
        assert one.report() == [
            *(cluster[name] for name in ("task_id", "cluster_id", "allocation_id")),
            *(trial[name] for name in ("hparams", "config", "trial_id")),
        ]
        counts = nodes[0]["counts"]
        assert sum(counts) == self.slots and sorted(nodes) == list(range(len(counts)))
        for rank, node in nodes.items():
            assert node["agent_id"], "expected the name of the node"
            assert len(set(node["slot_ids"])) == len(node["slot_ids"]) == counts[rank]
            assert (node["addresses"], node["counts"]) == (nodes[0]["addresses"], counts)
            assert len(node["addresses"]) == len(counts)
            assert node["port"] == nodes[0]["port"] and (len(counts) == 1 or node["port"])

    def test_variables_arrive_unchanged(self, launch: Launch) -> None:
        """Keys, JSON and whole scripts are passed in variables. No shell may read them on the way."""
        one = launch(_ENVIRONMENT, env=_VALUES)
        one.require_code()
        found = one.report()
        assert {name: found[name] for name in _VALUES} == _VALUES
        assert found["DET_TRIAL_ID"] == "7" and found["DET_HPARAMS"] and found["DET_CHIEF_IP"]
        assert found["PYTHONUNBUFFERED"], "the last lines before a crash would be lost"

    def test_variables_of_the_request_come_first(self, launch: Launch) -> None:
        """Users override with the config what a launcher sets, and what it inherits from this process."""
        mine = {"OMP_NUM_THREADS": "13", "LANG": "tlh", "CUDA_VISIBLE_DEVICES": ""}
        one = launch(f"report({{name: os.environ.get(name) for name in {sorted(mine)}}})", env=mine)
        one.require_code()
        assert one.report() == mine

    def test_standard_input_is_empty(self, launch: Launch) -> None:
        """A process that asks a question must not wait for ever, and must not read what belongs to the launcher."""
        one = launch("report(sys.stdin.read())")
        one.require_code()
        assert one.report() == ""

    def test_signals_have_their_default_actions(self, launch: Launch) -> None:
        """Launchers ignore signals of their terminal, and processes inherit that. ``kill`` would then do nothing."""
        one = launch(_SIGNALS)
        one.require_code()
        blocked, ignored = one.report()
        of_python = 1 << 12 | 1 << 24  # SIGPIPE and SIGXFSZ
        of_engines = 1 << 9 | 1 << 11  # SIGUSR1 and SIGUSR2
        own = (1 << 31) - 1  # the others are those of the C library, and of real time
        assert (hex(blocked), hex(ignored & own & ~of_python & ~of_engines)) == ("0x0", "0x0")

    def test_large_code_arrives(self, launch: Launch) -> None:
        """A context directory may have 96 MiB, which is more than what engines accept in a request."""
        content = os.urandom(self.code_size)
        one = launch(
            "import zlib; report(zlib.crc32(open('data', 'rb').read()))", files={"data": content}, slots=self.slots
        )
        one.require_code()
        assert one.report() == zlib.crc32(content)

    def test_phases_follow_each_other(self, launch: Launch) -> None:
        """The runner shows where a trial is. It counts as running before its first line arrives."""
        one = launch("report(1); time.sleep(1)", slots=self.slots)
        one.report()
        one.wait_until(lambda: [status for status in one.statuses if status.phase is Phase.RUNNING], "RUNNING")
        one.require_code()
        seen = [status.phase for status in one.statuses]
        assert sorted(seen, key=list(Phase).index) == seen and seen[-1] is Phase.RUNNING, seen
        for status in one.statuses:
            assert isinstance(status.handle, str) and all(isinstance(node, str) for node in status.nodes)
            assert "\n" not in status.message + status.handle
