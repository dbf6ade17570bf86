"""SIGKILL to a random worker at a random moment. All others soon raise an error that names it."""

from __future__ import annotations

import random
import time

import pytest
from det_testing import campaign_seeds

from . import job

pytestmark = [pytest.mark.integration, pytest.mark.campaign]
SEEDS = campaign_seeds(few=1, many=200)
LAYOUTS = [(2,), (3,), (4,), (2, 2), (1, 1, 1), (3, 1)]
LIMIT = 30.0
"""Seconds from the kill to the last error."""

LOOP = """
seed, port, force_tcp = map(int, sys.argv[1:])
context = join(chief_ip="127.0.0.1", pub_port=port, force_tcp=bool(force_tcp), timeout=600)
context.allgather(None)
print("ready", flush=True)
steps, delays = random.Random(seed), random.Random()
try:
    while True:
        name = steps.choice(["gather", "allgather", "broadcast", "gather_local", "allgather_local", "broadcast_local"])
        payload = bytes(steps.choice([0, 100, 100_000, 1_000_000]))
        time.sleep(delays.choice([0, 0, 0, 0.003]))
        getattr(context, name)(payload)
except PeerLost as error:
    print(error.rank, name, str(error), sep="|")
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_worker_is_an_error_in_all_others(seed: int) -> None:
    choose = random.Random(seed)
    ranks, force_tcp = job.layout(*choose.choice(LAYOUTS)), choose.random() < 0.3
    victim, delay = choose.randrange(len(ranks)), choose.random()
    print(f"seed {seed}: rank {victim} of {ranks} after {delay:.3f} s, force_tcp={force_tcp}")
    with job.processes(ranks, LOOP, seed, job.free_port(), int(force_tcp)) as workers:
        for worker in workers:
            assert worker.stdout
            assert worker.stdout.readline() == "ready\n", worker.communicate()[1]
        time.sleep(delay)
        workers[victim].kill()
        killed = time.monotonic()
        ended = job.ends(workers, timeout=LIMIT)
        took = time.monotonic() - killed
    assert took < LIMIT
    for rank, each in enumerate(ended):
        if rank != victim:
            assert each.code == 0, each.err
            lost, _, text = each.out.strip().split("|")
            assert int(lost) == victim, (rank, text)
            assert f"rank {victim} (pid {workers[victim].pid} on " in text
