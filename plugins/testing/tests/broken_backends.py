"""Backends with one defect each, and the tests of the suite that catch it.

test_backend.py runs the tests.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import det_core
from det_core.interfaces.backend import NodePlacement, WorkerCommand, WorkerRanks
from det_core.specs import BackendSpec

EXAMPLE = Path(__file__).parents[3] / "examples" / "backend_plugin"
sys.path[:0] = [path for path in (str(EXAMPLE), str(Path(__file__).parent)) if path not in sys.path]

from det_ring import Ring  # noqa: E402


class ReversesLocalRanks(Ring):
    def ranks(self) -> WorkerRanks:
        ranks = super().ranks()
        return replace(ranks, local_rank=ranks.local_size - 1 - ranks.local_rank)


class ForgetsNodes(Ring):
    def ranks(self) -> WorkerRanks:
        ranks = super().ranks()
        return replace(ranks, rank=ranks.local_rank, size=ranks.local_size, cross_rank=0, cross_size=1)


class AlwaysTheOnlyOne(Ring):
    def ranks(self) -> WorkerRanks:
        return WorkerRanks(rank=0, size=1, local_rank=0, local_size=1, cross_rank=0, cross_size=1)


class ClearsTheEnvironment(Ring):
    def start(self, place: NodePlacement, worker: Sequence[str]) -> WorkerCommand:
        start = super().start(place, worker)
        return replace(start, env={**start.env, "COLOR": ""})


class UsesAShell(Ring):
    def start(self, place: NodePlacement, worker: Sequence[str]) -> WorkerCommand:
        start = super().start(place, worker)
        return replace(start, argv=["/bin/sh", "-c", " ".join(start.argv)])


class ReversesNodes(Ring):
    def ranks(self) -> WorkerRanks:
        ranks = super().ranks()
        return replace(ranks, cross_rank=ranks.cross_size - 1 - ranks.cross_rank)


class GivesAllTheSameRank(Ring):
    def ranks(self) -> WorkerRanks:
        return replace(super().ranks(), rank=0, local_rank=0)


class DropsArguments(Ring):
    def start(self, place: NodePlacement, worker: Sequence[str]) -> WorkerCommand:
        return super().start(place, [word for word in worker if word])


class StartsElsewhere(Ring):
    def start(self, place: NodePlacement, worker: Sequence[str]) -> WorkerCommand:
        start = super().start(place, worker)
        return replace(start, argv=["env", "--chdir=/", *start.argv])


class StartsOneLess(Ring):
    def start(self, place: NodePlacement, worker: Sequence[str]) -> WorkerCommand:
        return super().start(replace(place, slots=max(1, place.slots - 1)), worker)


class ChoosesThreads(Ring):
    def start(self, place: NodePlacement, worker: Sequence[str]) -> WorkerCommand:
        start = super().start(place, worker)
        return replace(start, env={**start.env, "OMP_NUM_THREADS": "1"})


class Patched(Ring):
    """Backend whose launcher runs that of the ring after some lines of its own."""

    patch: ClassVar[str]

    def start(self, place: NodePlacement, worker: Sequence[str]) -> WorkerCommand:
        code = f"import sys, time, det_ring\n{self.patch}\nsys.exit(det_ring.main(1.0, sys.argv[1:]))"
        return replace(super().start(place, worker), argv=[sys.executable, "-c", code, *worker])


class HidesRanks(Patched):
    patch = "det_ring.relay = lambda rank, source, target: [target.write(line) for line in source]"


class CutsLines(Patched):
    patch = "det_ring.relay = lambda r, s, t: [t.write(b'[rank=%d] %s\\n' % (r, l[:1000].strip())) for l in s]"


class MixesStreams(Patched):
    patch = "sys.stderr = sys.stdout"


class HidesFailures(Patched):
    patch = "wait = det_ring.wait; det_ring.wait = lambda *arguments: wait(*arguments) and 0"


class WaitsForEverybody(Patched):
    patch = "det_ring.wait = lambda workers, grace: max(abs(worker.wait()) for worker in workers)"


class DropsErrors(Patched):
    patch = "relay = det_ring.relay; det_ring.relay = lambda r, s, t: t is sys.stdout.buffer and relay(r, s, t)"


class RestartsWorkers(Patched):
    patch = "main = det_ring.main; det_ring.main = lambda *arguments: main(*arguments) and main(*arguments)"


class RetriesUntilSuccess(Patched):
    patch = "main = det_ring.main; det_ring.main = lambda *arguments: main(*arguments) and 0"


class PrintsTwice(Patched):
    patch = "relay = det_ring.relay; det_ring.relay = lambda r, s, t: relay(r, (l for l in s for _ in '12'), t)"


class ListensEverywhere(Patched):
    patch = "import socket; server = socket.create_server(('', 0))"


CAUGHT_BY: dict[type[Ring], list[str]] = {
    ReversesLocalRanks: ["every_worker_has_a_rank_of_its_own[3]"],
    ForgetsNodes: ["two_nodes_are_one_job"],
    AlwaysTheOnlyOne: ["workers_talk", "two_launches_at_once_do_not_meet", "a_process_of_somebody_else_has_no_rank"],
    ClearsTheEnvironment: ["workers_get_environment_directory_and_arguments"],
    ReversesNodes: ["two_nodes_are_one_job"],
    GivesAllTheSameRank: ["every_worker_has_a_rank_of_its_own[3]"],
    DropsArguments: ["workers_get_environment_directory_and_arguments"],
    StartsElsewhere: ["workers_get_environment_directory_and_arguments"],
    StartsOneLess: ["every_worker_has_a_rank_of_its_own[3]"],
    ChoosesThreads: ["workers_get_environment_directory_and_arguments"],
    DropsErrors: ["lines_carry_the_rank_that_printed_them"],
    RestartsWorkers: ["a_worker_that_raises_ends_all_and_says_why[last]"],
    RetriesUntilSuccess: ["a_worker_that_exits_with_an_error_fails_the_job[last]"],
    UsesAShell: ["workers_get_environment_directory_and_arguments"],
    HidesRanks: ["lines_carry_the_rank_that_printed_them"],
    CutsLines: ["lines_carry_the_rank_that_printed_them"],
    MixesStreams: ["lines_carry_the_rank_that_printed_them"],
    HidesFailures: [
        "a_worker_that_exits_with_an_error_fails_the_job[last]",
        "a_worker_that_raises_ends_all_and_says_why[last]",
    ],
    WaitsForEverybody: ["a_killed_worker_ends_all[asleep-last]"],
    ListensEverywhere: ["one_node_listens_on_loopback_only"],
    PrintsTwice: ["a_worker_that_raises_ends_all_and_says_why[last]"],
}


@det_core.hookimpl
def det_backends() -> Iterator[BackendSpec]:
    for backend in CAUGHT_BY:
        yield BackendSpec(
            name=backend.__name__,
            target=f"broken_backends:{backend.__name__}",
            config_model="det_ring:RingConfig",
        )
