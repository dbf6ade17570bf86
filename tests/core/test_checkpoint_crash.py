"""SIGKILL of one rank at any moment of saving and restoring.

Visible checkpoints are complete, the other ranks raise, and garbage collection removes the remains.
"""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

import pytest
from det_testing import campaign_seeds

from det_core.cli import main
from det_core.interfaces.records import CheckpointState, State
from det_core.interfaces.tracking import TrackingStore
from det_core.storage import find_checkpoint, restore_checkpoint
from det_core.storage.config import DirectoryConfig
from det_core.storage.directory import DirectoryStorage
from det_core.tracking import open_store

from .workers import Ended, Workers, finish, limited

pytestmark = [pytest.mark.integration, pytest.mark.campaign]
SEEDS = campaign_seeds(few=1, many=200)
LIMIT = 30
"""Seconds within which the surviving ranks must raise."""

SAVE = """
import random
base, how = sys.argv[1:]
def write(directory):
    for number in range(30):
        (directory / f"r{rank}-{number}").write_bytes(os.urandom(20_000))
    (directory / f"r{rank}-large").write_bytes(os.urandom(3_000_000))
    (directory / "same").write_bytes(b"same")
with core.init(distributed=distributed, checkpoint_storage=base) as context:
    mine = Path(base + f"-source-{rank}")
    mine.mkdir()
    write(mine)
    distributed.allgather(None)
    print("ready", flush=True)
    try:
        for step in range(1000):
            if how == "upload":
                storage_id = context.checkpoint.upload(mine, {"steps_completed": step}, shard=True)
            elif how == "store_path":
                with context.checkpoint.store_path({"steps_completed": step}, shard=True) as (path, storage_id):
                    write(path)
            else:
                storage_id = step or context.checkpoint.upload(mine, {"steps_completed": 0}, shard=True)
                kept = storage_id if step == 0 else kept
                with context.checkpoint.restore_path(kept) as path:
                    assert len(list(path.iterdir())) == 31 * size + 2
            if rank == 0 and step > 2 and how != "restore":
                context.checkpoint.delete(storage_id)
    except det.errors.DetError as error:
        print(type(error).__name__, flush=True)
        raise
"""


def kill_when_ready(ranks: list[subprocess.Popen[str]], victim: int, delay: float) -> list[Ended]:
    """Kill one rank some seconds after all are ready, and return how each ended."""
    with limited(ranks, LIMIT + 60):
        for rank in ranks:
            assert rank.stdout and rank.stderr
            assert rank.stdout.readline() == "ready\n", "\n".join(each.stderr.read() for each in ranks if each.stderr)
        time.sleep(delay)
        ranks[victim].kill()
        return finish(ranks, LIMIT)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_rank_leaves_only_complete_checkpoints(
    det_home: Path, workers: Workers, tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(seed)
    size, how = chance.choice([1, 2, 4]), chance.choice(["upload", "upload", "store_path", "restore"])
    victim, delay = chance.randrange(size), chance.uniform(0, 0.4)
    base = tmp_path / "storage"
    ranks = workers.start(size, SAVE, str(base), how)
    story = f"seed {seed}: {how}, rank {victim} of {size} killed after {delay:.3f} s"
    for index, rank in enumerate(kill_when_ready(ranks, victim, delay)):
        if index != victim:
            assert rank.code == 1, f"{story}\n{rank.err}"
            assert rank.out.strip() in ("PeerLost", "RankFailed"), f"{story}\n{rank.err}"
    with open_store() as record:
        everything_visible_is_complete(record, base, tmp_path, story)
        (experiment,) = record.experiments()
        (trial,) = record.trials(experiment.id)
        record.set_trial_state(trial.id, State.ERROR)
        assert main(["checkpoint", "gc", "--orphans"]) == 0, capsys.readouterr().err
        assert record.checkpoints(states=[CheckpointState.ACTIVE]) == [], story
        completed = {row.uuid for row in record.checkpoints()}
        assert {path.name for path in base.glob("*")} == completed, story  # none if the rank was killed early
        everything_visible_is_complete(record, base, tmp_path / "again", story)


def everything_visible_is_complete(record: TrackingStore, base: Path, scratch: Path, story: str) -> None:
    store = DirectoryStorage(DirectoryConfig(container_path=base))
    visible = {path.parent.name for path in base.glob("*/metadata.json")}
    for storage_id in visible | {row.uuid for row in record.checkpoints()}:
        try:
            restore_checkpoint(store, storage_id, scratch / "restored" / storage_id)
        except Exception as error:
            raise AssertionError(story) from error
        size = len([name for name in find_checkpoint(store, storage_id).names() if name.endswith("-large")])
        assert len(find_checkpoint(store, storage_id).names()) == 31 * size + 1, story
