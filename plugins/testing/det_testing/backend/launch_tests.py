"""Tests of launches in which no worker fails."""

from __future__ import annotations

from ipaddress import ip_address
from itertools import chain

import pytest

from det_core.launch.network import find_adjacent_free_ports
from det_testing.backend._backend_suite import BackendSuite, StartScript, reported_values

_RANKS = """
from dataclasses import asdict
tell(asdict(backends.current_backend()[1].ranks()))
"""
_TALK = """
everybody = workers.allgather(["from", rank])
chief = workers.broadcast(f"chief of {workers.size}" if rank == 0 else None)
gathered = workers.gather(rank * 10)
tell([everybody, chief, gathered])
"""
_SURROUNDINGS = """
tell([os.environ["COLOR"], os.getcwd(), sys.argv[1:], os.environ["OMP_NUM_THREADS"]])
"""
_OUTPUT = r"""
for number in range(100):
    print("line", number, "of", rank)
print("complaint of", rank, file=sys.stderr)
print("\u00e9" * 5000)
import stat
tell([os.fstat(stream).st_ino for stream in (1, 2) if stat.S_ISREG(os.fstat(stream).st_mode)])
"""
_LISTENING = """
{joins}
workers.allgather(None)
tell(os.getpid())
time.sleep(1000)
"""
_ODD = ("--slots=9", "a b", "", "$HOME", "--", "*")


class BackendLaunchTests(BackendSuite):
    """Tests of ranks, messages, environment and output of workers."""

    @pytest.mark.parametrize("slots", [1, 3])
    def test_every_worker_has_a_rank_of_its_own(self, start: StartScript, slots: int) -> None:
        launch = start(_RANKS, slots=slots)
        launch.succeed()
        alike = {"size": slots, "local_size": slots, "cross_rank": 0, "cross_size": 1}
        assert reported_values(launch) == [{"rank": rank, "local_rank": rank, **alike} for rank in range(slots)]

    def test_workers_talk(self, start: StartScript) -> None:
        launch = start(_TALK)
        launch.succeed()
        everybody, chief = [["from", rank] for rank in range(self.slots)], f"chief of {self.slots}"
        gathered = [rank * 10 for rank in range(self.slots)]
        assert reported_values(launch) == [[everybody, chief, None if rank else gathered] for rank in range(self.slots)]

    def test_workers_get_environment_directory_and_arguments(self, start: StartScript) -> None:
        launch = start(_SURROUNDINGS, arguments=_ODD, env={"COLOR": "r e d", "OMP_NUM_THREADS": "3"})
        launch.succeed()
        assert reported_values(launch) == [["r e d", str(launch.directory / "code"), list(_ODD), "3"]] * self.slots

    def test_lines_carry_the_rank_that_printed_them(self, start: StartScript) -> None:
        launch = start(_OUTPUT)
        launch.succeed()
        out, err = launch.lines("stdout"), launch.lines("stderr")
        for rank in range(self.slots):
            lines = [f"line {number} of {rank}" for number in range(100)]
            assert [text for its, text in out if its == rank] == [*lines, "\u00e9" * 5000]
            assert (rank, f"complaint of {rank}") in err
        ours = {(launch.directory / name).stat().st_ino for name in ("stdout", "stderr")}
        files = set(chain.from_iterable(reported_values(launch))) - ours
        assert not files, "expected no files between worker and launcher, because a full disk would end the training"

    def test_two_launches_at_once_do_not_meet(self, start: StartScript) -> None:
        launches = [start(_TALK + "time.sleep(1)"), start(_TALK + "time.sleep(1)", slots=self.slots + 1)]
        for launch in launches:
            launch.succeed()
        assert [len(reported_values(launch)) for launch in launches] == [self.slots, self.slots + 1]

    def test_one_node_listens_on_loopback_only(self, start: StartScript) -> None:
        """Otherwise anyone on the network could read and change the data that workers exchange."""
        launch = start(_LISTENING.format(joins=self.joins))
        launch.wait_for(self.slots)
        addresses = launch.listening()
        outside = [address for address in addresses if not ip_address(address).is_loopback]
        assert not outside, f"a worker listens at {outside}, expected 127.0.0.1"
        assert addresses or not self.joins, f"no worker listens after {self.joins!r}; does it join other workers?"

    def test_two_nodes_are_one_job(self, start: StartScript) -> None:
        if not self.several_nodes:
            pytest.skip("several_nodes is False")
        hosts = ["--hosts=127.0.0.1,127.0.0.2", f"--port={find_adjacent_free_ports()}"]
        nodes = [start(_RANKS + "workers.allgather(rank)", node=[*hosts, f"--node={node}"]) for node in (0, 1)]
        for launch in nodes:
            launch.succeed()
        ranks = list(chain.from_iterable(reported_values(launch) for launch in nodes))
        size = 2 * self.slots
        assert [one["rank"] for one in sorted(ranks, key=lambda one: one["rank"])] == list(range(size))
        for node, launch in enumerate(nodes):
            alike = {"size": size, "local_size": self.slots, "cross_rank": node, "cross_size": 2}
            assert all(alike.items() <= one.items() for one in reported_values(launch))
            assert sorted(one["local_rank"] for one in reported_values(launch)) == list(range(self.slots))
        assert {one["cross_rank"] for one in ranks if one["rank"] == 0} == {0}
