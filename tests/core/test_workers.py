"""`core.init` in several real processes of one script."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from det_core.interfaces.records import State
from det_core.tracking import open_store

from .workers import Workers, finish

pytestmark = pytest.mark.integration


def test_all_workers_belong_to_one_trial(det_home: Path, workers: Workers) -> None:
    size = 4
    started = workers.start(
        size,
        """
        config = {"hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": 1}}}
        with core.init(distributed=distributed, config=config) as context:
            assert context.distributed is distributed
            ids = distributed.allgather((rank, context.trial.trial_id, context.trial.hparams["lr"]))
            if rank == 0:
                context.train.report_training_metrics(1, {"loss": 0.5})
            context.train.report_metrics(f"rank_{rank}", 1, {"rank": rank})
        print(ids)
        """,
    )
    ended = finish(started)
    assert [one.code for one in ended] == [0] * size, ended
    assert len({one.out for one in ended}) == 1
    assert "det: experiment 1 completed: 1 batch, " in ended[0].err
    assert not any("det: " in one.err for one in ended[1:])
    with open_store() as store:
        (experiment,) = store.experiments()
        (trial,) = store.trials(experiment.id)
        assert (experiment.state, trial.state, trial.run_id) == (State.COMPLETED, State.COMPLETED, 1)
        groups = {m.group: dict(m.metrics) for m in store.metrics(trial.id)}
        assert groups == {"training": {"loss": 0.5}} | {f"rank_{rank}": {"rank": rank} for rank in range(size)}


LOOP = """
mode = core.PreemptMode[sys.argv[1]]
with core.init(distributed=distributed, preempt_mode=mode) as context:
    print("ready", flush=True)
    for step in range(100_000):
        if mode is core.PreemptMode.ChiefOnly:
            leave = distributed.broadcast(rank == 0 and context.preempt.should_preempt())
        else:
            leave = context.preempt.should_preempt()
        if leave:
            break
        time.sleep(0.001)
    assert leave
print(step)
"""


@pytest.mark.parametrize(
    ("size", "asked", "mode"),
    [(2, 0, "WorkersAskChief"), (4, 3, "WorkersAskChief"), (2, 0, "ChiefOnly"), (2, 1, "ChiefOnly")],
)
def test_a_signal_to_any_worker_makes_all_stop_at_the_same_step(
    det_home: Path, workers: Workers, size: int, asked: int, mode: str
) -> None:
    started = workers.start(size, LOOP, mode)
    for worker in started:
        assert worker.stdout
        assert worker.stdout.readline() == "ready\n"
    started[asked].send_signal(signal.SIGTERM)
    ended = finish(started)
    assert [one.code for one in ended] == [0] * size, ended
    assert len({one.out for one in ended}) == 1
    with open_store() as store:
        (experiment,) = store.experiments()
        (trial,) = store.trials(experiment.id)
        assert store.run(trial.id, 1).preemption_acknowledged
        assert experiment.state is State.CANCELED


def test_workers_decide_independently_in_workers_ask_master(det_home: Path, workers: Workers) -> None:
    size = 2
    started = workers.start(size, LOOP, "WorkersAskMaster")
    for worker in started:
        assert worker.stdout
        assert worker.stdout.readline() == "ready\n"
    started[1].send_signal(signal.SIGTERM)
    assert started[1].wait(60) == 0
    assert [worker.poll() for index, worker in enumerate(started) if index != 1] == [None] * (size - 1)
    with open_store() as store:
        (experiment,) = store.experiments()
        store.set_experiment_state(experiment.id, State.PAUSED)  # all workers poll this state
        assert [one.code for one in finish(started)] == [0] * size
        assert store.experiment(experiment.id).state is State.PAUSED


def test_only_the_chief_may_poll_in_chief_only(det_home: Path, workers: Workers) -> None:
    workers.run(
        2,
        """
        with core.init(distributed=distributed, preempt_mode=core.PreemptMode.ChiefOnly) as context:
            try:
                print(context.preempt.should_preempt())
            except RuntimeError as error:
                assert rank == 1 and "rank 1 called should_preempt()" in str(error)
            else:
                assert rank == 0
            distributed.allgather(None)
        """,
    )


def test_invalid_hyperparameters_that_all_workers_find_are_recorded(det_home: Path, workers: Workers) -> None:
    workers.run(
        2,
        """
        with core.init(distributed=distributed):
            raise det.InvalidHP("too large")
        """,
    )
    with open_store() as store:
        (experiment,) = store.experiments()
        assert store.run(store.trials(experiment.id)[0].id, 1).early_exit == "EXITED_REASON_INVALID_HP"


def test_a_worker_that_dies_ends_the_others(det_home: Path, workers: Workers) -> None:
    ended = finish(
        workers.start(
            3,
            """
            with core.init(distributed=distributed) as context:
                distributed.allgather(rank)
                if rank == 2:
                    os.kill(os.getpid(), signal.SIGKILL)
                while not context.preempt.should_preempt():
                    distributed.allgather(rank)
            """,
        )
    )
    assert [one.code for one in ended] == [1, 1, -signal.SIGKILL]
    assert all("PeerLost" in one.err and "rank 2" in one.err for one in ended if one.code == 1)
    with open_store() as store:
        assert store.experiments()[0].state is State.ERROR
