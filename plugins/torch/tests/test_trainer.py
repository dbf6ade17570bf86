"""Training in scripts that run by themselves or as the entrypoint of an experiment."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import det_torch
import numpy as np
import pytest
import torch
import yaml
from det_torch import Batch, Epoch, Record, Trainer, TrainUnit
from torch import nn
from torch.utils.data import TensorDataset

from det_core import core, get_cluster_info
from det_core.errors import CheckpointNotFound, ConfigError, InvalidExperimentException, InvalidTrial
from det_core.interfaces.records import CheckpointState, State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store
from tests.comm.job import free_port

DET = Path(sys.executable).with_name("det")
INPUTS = torch.arange(40.0).reshape(20, 2) / 40

SCRIPT = '''
"""Train 20 batches. At the batch in argv[2] the script gets the signal in argv[1], but only once."""

import os
import signal
import sys
import time
from pathlib import Path

import det_core as det
import det_torch
import torch
from det_core.tracking import open_store
from det_torch import Batch, DataLoader, PyTorchTrial
from torch import nn
from torch.utils.data import TensorDataset, random_split

INPUTS = torch.arange(60.0).reshape(30, 2) / 60


class Linear(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.2), nn.Linear(4, 1))
        self.model = context.wrap_model(net)
        self.adam = context.wrap_optimizer(torch.optim.Adam(net.parameters(), lr=context.get_hparam("lr")))

    def build_training_data_loader(self):
        half, _ = random_split(TensorDataset(INPUTS, INPUTS.sum(1, keepdim=True)), [15, 15])
        return DataLoader(half, batch_size=4, shuffle=True)

    build_validation_data_loader = build_training_data_loader

    def loss(self, batch):
        return (self.model(batch[0]) - batch[1]).pow(2).mean()

    def train_batch(self, batch, epoch_idx, batch_idx):
        mark = Path("mark")
        if sys.argv[1:] and batch_idx == int(sys.argv[2]) and not mark.exists():
            mark.touch()
            wait_for_a_checkpoint(self.context.get_trial_id())
            os.kill(os.getpid(), getattr(signal, sys.argv[1]))
        loss = self.loss(batch)
        self.context.backward(loss)
        self.context.step_optimizer(self.adam)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        return {"validation_loss": self.loss(batch)}


def wait_for_a_checkpoint(trial_id):
    """Wait for a complete checkpoint, because checkpoints are written in the background."""
    deadline = time.monotonic() + 120
    with open_store() as store:
        while not store.checkpoints(trial_id=trial_id) and time.monotonic() < deadline:
            time.sleep(0.01)


if __name__ == "__main__":
    seed = os.environ.get("SEED")
    info = det.get_cluster_info()
    with det_torch.init(
        hparams={"lr": 0.02, "global_batch_size": 4},
        exp_conf={"reproducibility": {"experiment_seed": int(seed)}} if seed else None,
        aggregation_frequency=2,
    ) as context:
        det_torch.Trainer(Linear(context), context).fit(
            max_length=Batch(20),
            checkpoint_period=Batch(5),
            validation_period=Batch(6),
            reporting_period=Batch(4),
            checkpoint_policy="none",
            latest_checkpoint=info.latest_checkpoint if info else os.environ.get("LATEST"),
        )
'''


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DET_INFO_DIR", raising=False)
    get_cluster_info.cache_clear()
    yield tmp_path / "home"
    get_cluster_info.cache_clear()


@pytest.fixture
def store(home: Path) -> Iterator[TrackingStore]:
    with open_store() as opened:
        yield opened


class Linear(det_torch.PyTorchTrial):
    """Trial that records the number of trained batches at each evaluation."""

    def __init__(self, context: Any, evaluated: list[int] | None = None) -> None:
        super().__init__(context)
        self.evaluated = [] if evaluated is None else evaluated

    def build_model(self) -> nn.Module:
        return nn.Linear(2, 1)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.05)

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> Any:
        return {"loss": (model(batch[0]) - batch[1]).pow(2).mean()}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        self.evaluated.append(self.context.current_train_batch())
        return {"validation_loss": (model(batch[0]) - batch[1]).pow(2).mean()}

    def build_training_data_loader(self) -> Any:
        data = TensorDataset(INPUTS, INPUTS.sum(1, keepdim=True))
        return det_torch.DataLoader(data, batch_size=4, shuffle=True)

    build_validation_data_loader = build_training_data_loader


class Failing(Linear):
    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> Any:
        raise ZeroDivisionError("fails on purpose")


class Falling(Linear):
    """Trial whose validation loss falls with every batch."""

    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        return {"validation_loss": -self.context.current_train_batch()}


def train(trial_class: type[Linear] = Linear, hparams: Any = None, exp_conf: Any = None, **options: Any) -> Linear:
    with det_torch.init(hparams={"global_batch_size": 4, **(hparams or {})}, exp_conf=exp_conf) as context:
        trial = trial_class(context)
        Trainer(trial, context).fit(**options)
    return trial


def run_script(directory: Path, *arguments: str, **environ: str) -> int:
    (directory / "train.py").write_text(SCRIPT)
    command = [sys.executable, "train.py", *arguments]
    result = subprocess.run(
        command, cwd=directory, env={**os.environ, **environ}, capture_output=True, text=True, timeout=120
    )
    assert result.returncode in (0, -signal.SIGKILL), result.stderr
    return result.returncode


def history(store: TrackingStore, trial_id: int, after: int = 0) -> list[Any]:
    reports = [report for report in store.metrics(trial_id) if report.steps_completed > after]
    return [(report.group, report.steps_completed, report.metrics, report.batch_metrics) for report in reports]


def steps(store: TrackingStore, group: str, trial_id: int = 1) -> list[int]:
    return [report.steps_completed for report in store.metrics(trial_id, group=group)]


def checkpoints(store: TrackingStore, trial_id: int = 1) -> dict[int, Path]:
    """Return the directories of all that were saved by their numbers of trained batches, oldest first."""
    return {
        row.steps_completed: Path(row.storage["container_path"]) / row.uuid
        for row in store.checkpoints(trial_id=trial_id, states=[CheckpointState.COMPLETED, CheckpointState.DELETED])
        if row.steps_completed is not None
    }


@pytest.mark.integration
@pytest.mark.slow
def test_a_killed_script_continues_from_its_latest_checkpoint(
    tmp_path: Path, store: TrackingStore, fingerprint: Callable[[Any], Any]
) -> None:
    assert run_script(tmp_path, SEED="7") == 0
    assert run_script(tmp_path, "SIGKILL", "13", SEED="7") == -signal.SIGKILL
    calm, killed = checkpoints(store, 1), checkpoints(store, 2)
    latest = max(killed)  # the one after 10 may not have been complete
    assert run_script(tmp_path, LATEST=killed[latest].name) == 0  # the seed comes with the checkpoint
    continued = checkpoints(store, 3)
    assert list(calm) == [5, 10, 15, 20]
    assert list(continued) == [step for step in calm if step > latest]
    assert fingerprint(continued[20]) == fingerprint(calm[20])
    assert history(store, 3) == history(store, 1, after=latest)
    assert store.trial(3).state is State.COMPLETED
    assert run_script(tmp_path, DET_RESUME="2") == 0
    assert fingerprint(checkpoints(store, 2)[20]) == fingerprint(calm[20])
    assert history(store, 2) == history(store, 1)


def test_a_script_continues_its_experiment_exactly(
    store: TrackingStore, fingerprint: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    hparams, exp_conf = {"global_batch_size": 4}, {"reproducibility": {"experiment_seed": 5}}
    options: dict[str, Any] = {"max_length": Batch(6), "checkpoint_policy": "none", "validation_period": Batch(2)}
    train(exp_conf=exp_conf, **options)

    def stop(trial: Linear, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> Any:
        if batch_idx == 3:
            signal.raise_signal(signal.SIGINT)
        return Linear.train_batch(trial, batch, model, epoch_idx, batch_idx)

    train(type("Stopped", (Linear,), {"train_batch": stop}), exp_conf=exp_conf, **options)
    assert (store.experiment(2).state, list(checkpoints(store, 2))) == (State.CANCELED, [4])
    with det_torch.init(hparams=hparams, resume=2) as context:
        assert (context.get_experiment_id(), context.get_trial_id()) == (2, 2)
        Trainer(Linear(context), context).fit(**options)
    assert history(store, 2) == history(store, 1)
    assert fingerprint(checkpoints(store, 2)[6]) == fingerprint(checkpoints(store, 1)[6])


@pytest.mark.integration
@pytest.mark.slow
def test_a_script_as_an_entrypoint_is_preempted_and_resumed(
    tmp_path: Path, store: TrackingStore, fingerprint: Callable[[Any], Any]
) -> None:
    config: dict[str, Any] = {
        "name": "script",
        "entrypoint": f"{sys.executable} train.py",
        "hyperparameters": {"lr": 0.5},
        "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"batches": 16}},
        "reproducibility": {"experiment_seed": 3},
        "max_restarts": 0,
    }
    for name, arguments in {"calm": "", "disturbed": " SIGTERM 7"}.items():
        directory = tmp_path / name
        directory.mkdir()
        (directory / "train.py").write_text(SCRIPT)
        # The mark is outside of the snapshot of the code, which is made anew for each start.
        mark = f"MARK={tmp_path / name}.mark"
        text = SCRIPT.replace('Path("mark")', 'Path(os.environ["MARK"])')
        (directory / "train.py").write_text(text)
        changes = {"entrypoint": config["entrypoint"] + arguments, "environment": {"environment_variables": [mark]}}
        (directory / "config.yaml").write_text(yaml.safe_dump({**config, **changes}))
        ran = subprocess.run([DET, "run", directory / "config.yaml"], capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "det: experiment" not in ran.stdout + ran.stderr, "only det run shows the experiment"
    calm, disturbed = (store.trials(number)[0] for number in (1, 2))
    assert (calm.run_id, disturbed.run_id) == (1, 2)
    assert calm.hparams == {"lr": 0.5}
    assert list(checkpoints(store, disturbed.id))[-1] == 16, "the searcher's length, not the script's"
    saved = store.checkpoints(trial_id=disturbed.id, states=list(CheckpointState))
    assert 8 in [checkpoint.steps_completed for checkpoint in saved], "it stopped in time"
    assert history(store, disturbed.id) == history(store, calm.id)
    last, expected = (checkpoints(store, trial.id)[16] for trial in (disturbed, calm))
    assert fingerprint(last) == fingerprint(expected)
    description = json.loads((last / "load_data.json").read_text())
    assert description["hparams"] == {"lr": 0.5, "global_batch_size": 4}, "the script adds, the experiment decides"


def test_a_script_shows_its_result_and_records_its_length(
    store: TrackingStore, capsys: pytest.CaptureFixture[str]
) -> None:
    train(max_length=Epoch(2))
    out, err = capsys.readouterr()
    assert out == ""
    assert "det: experiment 1 completed: 10 batches, " in err and "det:   best checkpoint " in err
    assert store.trial(1).total_batches == 10
    with det_torch.init(quiet=True):
        pass
    assert capsys.readouterr().err == ""


def test_points_are_exact_and_periods_repeat(store: TrackingStore) -> None:
    train(
        max_length=Batch(11),
        checkpoint_period=Batch([7, 2]),
        validation_period=Epoch({1}),
        reporting_period=Record(16),
        checkpoint_policy="none",
    )
    assert list(checkpoints(store)) == [2, 7, 11]
    assert steps(store, "validation") == [5, 11]
    assert steps(store, "training") == [2, 4, 5, 7, 8, 11]


def test_missing_arguments_take_the_values_of_the_config(store: TrackingStore) -> None:
    exp_conf = {
        "scheduling_unit": 3,
        "min_validation_period": {"batches": 4},
        "min_checkpoint_period": {"epochs": 1},
        "checkpoint_policy": "none",
        "perform_initial_validation": True,
        "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"batches": 6}},
    }
    train(exp_conf=exp_conf)
    assert steps(store, "training") == [3, 4, 5, 6]
    assert steps(store, "validation") == [0, 4, 6]
    assert list(checkpoints(store)) == [5, 6]
    train(exp_conf=exp_conf, max_length=Batch(2), validation_period=Batch(1), step_zero_validation=True)
    assert steps(store, "validation", 2) == [0, 1, 2]


def test_max_length_is_required_and_a_single_number(store: TrackingStore) -> None:
    with pytest.raises(
        ValueError, match=r"a script that runs by itself .*for example with fit\(max_length=Epoch\(10\)\)"
    ):
        train()
    for wrong in (Batch([3, 5]), Batch(0)):
        with pytest.raises(ValueError, match="expected one number >= 1, such as Batch"):
            train(max_length=wrong)
    assert store.trial(1).state is State.ERROR


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"checkpoint_period": 100}, r"checkpoint_period is 100; expected Batch\(100\), Epoch\(1\)"),
        ({"validation_period": "epoch"}, "validation_period is 'epoch'; expected"),
        ({"reporting_period": 100}, "reporting_period is 100; expected"),
        ({"max_length": 10}, "max_length is 10; expected"),
        ({"checkpoint_policy": "every"}, "checkpoint_policy is 'every'; expected one of 'best', 'all', 'none'"),
    ],
)
def test_wrong_arguments_of_fit_are_refused(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        train(**{"max_length": Batch(1), **options})


def test_a_trainer_is_used_once_in_the_block_with_its_context() -> None:
    with det_torch.init(hparams={"global_batch_size": 4}) as context:
        trainer = Trainer(Linear(context), context)
        trainer.fit(max_length=Batch(1))
        with pytest.raises(InvalidTrial, match=r"fit\(\) was called twice in one block"):
            trainer.fit(max_length=Batch(2))
    with det_torch.init() as context:
        trainer = Trainer(Linear(context), context)
    with pytest.raises(InvalidTrial, match=r"after the block of init\(\) ended"):
        trainer.fit(max_length=Batch(1))
    debugging = det_torch.PyTorchTrialContext.from_config({})
    with pytest.raises(InvalidTrial, match=r"with det_torch.init\(\) as context"):
        Trainer(Linear(debugging), debugging)
    with pytest.raises(InvalidTrial, match="expected an instance of a class derived from PyTorchTrial"):
        Trainer(Linear, context)  # type: ignore[arg-type]


def test_wrong_arguments_of_init_are_refused() -> None:
    with pytest.raises(ValueError, match="aggregation_frequency is 0; expected an integer of at least 1"):
        det_torch.init(aggregation_frequency=0).__enter__()
    with pytest.raises(ConfigError, match="scheduling_unit"):
        det_torch.init(exp_conf={"scheduling_unit": 0}).__enter__()
    pair: list[core.DistributedContext] = []
    port = free_port()

    def meet(rank: int) -> None:
        ranks = {"rank": rank, "local_rank": rank, "cross_rank": 0}
        pair.append(core.DistributedContext(**ranks, size=2, local_size=2, cross_size=1, pub_port=port, timeout=100))

    workers = [threading.Thread(target=meet, args=(rank,)) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    with pytest.raises(ValueError, match=r"distributed has 2 workers.* one slot"):
        det_torch.init(distributed=pair[0]).__enter__()
    for distributed in pair:
        distributed.close()


def test_blocks_one_after_another_leave_nothing_behind(store: TrackingStore, tmp_path: Path) -> None:
    threads, handler = set(threading.enumerate()), signal.getsignal(signal.SIGTERM)
    train(max_length=Batch(3))
    with pytest.raises(ZeroDivisionError):
        train(Failing, max_length=Batch(3), profiling_enabled=True)
    with pytest.raises(InvalidExperimentException, match="global_batch_size"), det_torch.init() as context:
        Trainer(Linear(context), context).fit(max_length=Record(40))
    train(max_length=Batch(3))
    states = [store.trial(number).state for number in (1, 2, 3, 4)]
    assert states == [State.COMPLETED, State.ERROR, State.ERROR, State.COMPLETED]
    assert signal.getsignal(signal.SIGTERM) == handler
    deadline = time.monotonic() + 60
    while left := [thread for thread in threading.enumerate() if thread not in threads]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_only_the_same_seed_trains_the_same(store: TrackingStore, fingerprint: Callable[[Any], Any]) -> None:
    same = {"reproducibility": {"experiment_seed": 5}}
    for exp_conf in (same, same, {"reproducibility": {"experiment_seed": 6}}):
        torch.rand(3)
        train(exp_conf=exp_conf, max_length=Batch(4))
    one, again, other = (fingerprint(checkpoints(store, number)[4])["models_state_dict"] for number in (1, 2, 3))
    assert one == again != other


def test_best_needs_a_metric(store: TrackingStore, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "det.torch"):
        train(max_length=Batch(4), validation_period=Batch(1))
    assert [record.message[:33] for record in caplog.records] == ["checkpoint_policy 'best' needs a "]
    assert list(checkpoints(store)) == [1, 2, 3, 4]
    caplog.clear()
    searcher = {"name": "single", "metric": "validation_loss", "smaller_is_better": False}
    with caplog.at_level(logging.WARNING, "det.torch"):
        train(Falling, exp_conf={"searcher": searcher}, max_length=Batch(8), validation_period=Batch(1))
    assert caplog.records == []
    assert list(checkpoints(store, 2)) == [1, 8]
    missing = {"searcher": {"name": "single", "metric": "accuracy"}}
    with pytest.raises(InvalidTrial, match="searcher.metric is 'accuracy'"):
        train(exp_conf=missing, max_length=Batch(1))


class Cosine(Linear):
    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> det_torch.LRScheduler:
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
        return det_torch.LRScheduler(schedule, det_torch.LRScheduler.StepMode.STEP_EVERY_EPOCH)


def test_an_extension_beyond_the_end_of_a_schedule_is_named_before_training(
    store: TrackingStore, caplog: pytest.LogCaptureFixture
) -> None:
    train(Cosine, max_length=Epoch(2), checkpoint_period=Epoch(1))
    latest = checkpoints(store)
    for at, length in [(5, 2), (10, 3), (5, 3)]:
        train(Cosine, max_length=Epoch(length), latest_checkpoint=latest[at].name, checkpoint_policy="all")
    named = [message for message in caplog.messages if "CosineAnnealingLR" in message]
    assert named == 2 * [
        "the training was extended from 10 to 15 batches, but CosineAnnealingLR has T_max=2, which ends before: the "
        "learning rate then rises again. The checkpoint has this number, whatever the code says. For another schedule, "
        "begin a new experiment with the weights of the checkpoint"
    ]


def test_test_mode_does_everything_once(store: TrackingStore) -> None:
    trial = train(max_length=Epoch(100), validation_period=Batch(1), test_mode=True)
    assert steps(store, "training") == steps(store, "validation") == list(checkpoints(store)) == [1]
    assert trial.evaluated == [1], "one batch of five"
    train(test_mode=True, latest_checkpoint=checkpoints(store)[1].name)
    assert list(checkpoints(store, 2)) == [2]


def test_arguments_of_init_reach_the_context_and_the_store(store: TrackingStore) -> None:
    hparams = {"global_batch_size": 4, "layers": {"type": "wide", "sizes": [8, 4]}, "name": None}
    exp_conf = {
        "name": "given",
        "hyperparameters": {"lr": {"type": "double", "minval": 1, "maxval": 2}},
        "data": {"a": 1},
    }
    with det_torch.init(hparams=hparams, exp_conf=exp_conf, aggregation_frequency=3) as context:
        assert 1 <= context.get_hparam("lr") <= 2
        assert context.get_hparams() == {**hparams, "lr": context.get_hparam("lr")}
        assert context.get_data_config() == {"a": 1}
        assert context.get_experiment_config()["optimizations"]["aggregation_frequency"] == 3
        assert context.get_enable_tensorboard_logging()
        trial = store.trial(context.get_trial_id())
    assert trial.hparams == context.get_hparams()
    assert store.experiment(trial.experiment_id).config["name"] == "given"


@pytest.mark.parametrize(("given", "expected"), [({}, 2), ({"aggregation_frequency": 3}, 3)])
def test_the_config_sets_the_aggregation_frequency_if_init_does_not(given: dict[str, int], expected: int) -> None:
    exp_conf = {"optimizations": {"aggregation_frequency": 2}}
    with det_torch.init(exp_conf=exp_conf, **given) as context:  # type: ignore[arg-type]
        assert context.aggregation_frequency == expected


def test_tensorboard_files_can_be_switched_off(home: Path) -> None:
    train(max_length=Batch(1))
    assert len(list(home.rglob("*tfevents*"))) == 1
    with det_torch.init(hparams={"global_batch_size": 4}, enable_tensorboard_logging=False) as context:
        assert not context.get_enable_tensorboard_logging()
        Trainer(Linear(context), context).fit(max_length=Batch(1))
    assert len(list(home.rglob("*tfevents*"))) == 1


class Watching(Linear):
    """Trial that reports whether the host is being sampled."""

    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        sampled = any(thread.name == "det-profiler" for thread in threading.enumerate())
        return {"validation_loss": 0.0, "sampled": int(sampled)}


@pytest.mark.parametrize("way", ["none", "fit", "configure_profiler", "config"])
def test_the_host_is_sampled_while_it_trains(way: str, store: TrackingStore) -> None:
    exp_conf = {"profiling": {"enabled": True}} if way == "config" else None
    with det_torch.init(exp_conf=exp_conf) as context:
        trainer = Trainer(Watching(context), context)
        if way == "configure_profiler":
            trainer.configure_profiler(enabled=True, sync_timings=True)
        trainer.fit(max_length=Batch(1), profiling_enabled=way == "fit")
        assert "det-profiler" not in [thread.name for thread in threading.enumerate()]
    (validation,) = store.metrics(1, group="validation")
    assert validation.metrics["sampled"] == (way != "none")


class OfOldReleases(Linear):
    """Trial with the model, optimizer and callback of ``old/make.py``, and a metric reducer."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        self.model = context.wrap_model(net)
        self.adam = context.wrap_optimizer(torch.optim.Adam(net.parameters(), lr=0.01))
        schedule = torch.optim.lr_scheduler.ExponentialLR(self.adam, 0.9)
        context.wrap_lr_scheduler(schedule, det_torch.LRScheduler.StepMode.STEP_EVERY_BATCH)
        self.trained: list[int] = []
        self.count = context.wrap_reducer(len, "count")

    def build_callbacks(self) -> dict[str, Any]:
        return {"counter": Counter()}

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.trained.append(batch_idx)
        self.count.update(batch_idx)
        loss = self.model(batch[0]).pow(2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.adam)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> Any:
        return {"validation_loss": self.model(batch[0]).pow(2).mean()}

    def build_training_data_loader(self) -> Any:
        return det_torch.DataLoader(TensorDataset(torch.ones(20, 3)), batch_size=4)

    build_validation_data_loader = build_training_data_loader


class Counter(det_torch.PyTorchCallback):
    def __init__(self) -> None:
        self.counted = 0

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        assert (first_batch_idx, checkpoint_uuid) == (5, "old")

    def state_dict(self) -> dict[str, Any]:
        return {"counted": self.counted}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.counted = state_dict["counted"]


@pytest.mark.parametrize("release", ["0.19.10", "0.38.1"])
@pytest.mark.filterwarnings("ignore:checkpoint old has no checksums")
def test_a_checkpoint_of_an_old_release_continues(release: str, home: Path, store: TrackingStore) -> None:
    shutil.copytree(Path(__file__).parent / "old" / release, home / "checkpoints" / "old")
    trial = train(OfOldReleases, max_length=Batch(8), latest_checkpoint="old")
    assert trial.trained == [5, 6, 7]
    (last,) = checkpoints(store).values()
    state = torch.load(last / "state_dict.pth", weights_only=True)
    assert state["callbacks"] == {"counter": {"counted": 3}}
    assert state["lr_schedulers_state_dict"][0]["_last_lr"] == [pytest.approx(0.01 * 0.9**8)]
    assert [report.metrics["count"] for report in store.metrics(1, group="training")] == [3]


def test_an_unknown_checkpoint_is_an_error(home: Path) -> None:
    with pytest.raises(CheckpointNotFound, match="nothing"):
        train(max_length=Batch(1), latest_checkpoint="nothing")


@pytest.mark.parametrize(
    ("unit", "value", "expected"),
    [
        (Batch, 100, 100),
        (Epoch, np.int64(3), 3),
        (Record, [640, 64, 64], (64, 640)),
        (Batch, range(10, 31, 10), (10, 20, 30)),
        (Batch, {2}, (2,)),
        (Batch, 0, 0),
    ],
)
def test_units_normalize_their_values(unit: type[TrainUnit], value: Any, expected: Any) -> None:
    assert unit(value).value == expected
    assert unit(value) == unit(expected)
    assert unit(value) != TrainUnit(value)


@pytest.mark.parametrize("value", [1.5, True, "3", None, [1, 2.5], -1, [0, 3], []])
def test_wrong_values_of_units_are_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^Batch\(.*\): expected an integer such as Batch\(100\), or"):
        Batch(value)
