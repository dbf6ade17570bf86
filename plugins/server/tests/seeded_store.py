"""A tracking store with what pages must be able to show: searches, errors, hostile names and long texts."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from det_core.interfaces.records import CodeVersion, LogLine, Machine, MetricsReport, State, SystemMetrics, TrialRecord
from det_core.interfaces.tracking import TrackingStore

HOSTILE = "<img src=x onerror=alert(1)>\"'&{{7*7}}"
LONG = "a very long name of an experiment that somebody wrote without thinking of tables " * 2
UNICODE = "Größe 模型 🚀 ‮abc"
_SPACE = {
    "lr": {"type": "log", "minval": -4, "maxval": -1, "base": 10},
    "width": {"type": "categorical", "vals": [32, 64, 128]},
    "dropout": {"type": "double", "minval": 0.0, "maxval": 0.5},
    "optimizer": {"name": {"type": "categorical", "vals": ["adam", "sgd"]}},
}
_GPU = "GPU-4c6f"
_VERSION = CodeVersion(commit="3d9ea3ed" * 5, branch="main", is_changed=True, remote="https://git.example.org/digits")
_MACHINE = Machine(
    host="gpu-node-1.example.org",
    system="Debian GNU/Linux 12 (bookworm)",
    kernel="Linux 6.1.0 x86_64",
    python="3.12.4",
    cpus=64,
    cpu_model="Intel(R) Xeon(R) Platinum 8480+",
    memory=1 << 40,
    gpus=[{"name": "NVIDIA H100 80GB HBM3", "memory": 80 << 30, "driver": "570.1"}] * 8,
    packages={f"package-{number}": f"{number}.0" for number in range(60)},
)


@dataclass
class Seeded:
    """Ids of what was recorded."""

    search: int
    running: int
    failed: int
    hostile: int
    queued: int
    best_trial: int
    running_trial: int
    hostile_trial: int
    model: int
    hostile_model: int
    checkpoint: str
    """A version of the model."""
    free_checkpoint: str
    """A checkpoint that is in no model."""


def seed_store(store: TrackingStore, *, trials: int = 40, batches: int = 1600) -> Seeded:
    """Record experiments in all states."""
    random.seed(1)
    search = _search(store, trials, batches)
    best = min(
        (one for one in store.trial_results(search) if one.best),
        key=lambda one: one.best.value if one.best else math.inf,
    ).trial
    uuid = store.checkpoints(trial_id=best.id)[-1].uuid
    store.create_model("digits", description="Classifier of handwritten digits", owner="ada", labels=["production"])
    store.add_model_version("digits", uuid, version_name="first", comment="validated on the hidden set", owner="ada")
    hostile_model = store.create_model(HOSTILE, description=HOSTILE, owner=HOSTILE, labels=[HOSTILE], notes=HOSTILE).id
    failed, hostile = _failed(store), _hostile(store)
    queued = _experiment(store, "queued after the others", owner="grace")
    running, running_trial = _running(store)
    hostile_trial = store.trials(hostile)[0].id
    return Seeded(
        search=search,
        running=running,
        failed=failed,
        hostile=hostile,
        queued=queued,
        best_trial=best.id,
        running_trial=running_trial,
        hostile_trial=hostile_trial,
        model=store.model("digits").id,
        hostile_model=hostile_model,
        checkpoint=uuid,
        free_checkpoint=next(one.uuid for one in store.checkpoints(experiment_id=search) if one.uuid != uuid),
    )


def report_curve(store: TrackingStore, trial: TrialRecord, run: int, steps: Sequence[int], lr: float) -> None:
    """Report a learning curve, whose quality depends on the learning rate."""
    good = math.exp(-abs(math.log10(lr) + 2.3))
    floor = 0.04 + 0.3 * (1 - good)
    reports = []
    for step in steps:
        falling = math.exp(-step * good / 300)
        loss = floor + (2.3 - floor) * falling + random.gauss(0, 0.02 + 0.05 * falling)
        training = {"loss": abs(loss), "grad_norm": abs(random.gauss(1, 0.2)) * falling}
        reports.append(_report(trial, run, "training", step, training))
        if step % 40 == 0:
            validation = {"val_loss": abs(loss * 1.08 + random.gauss(0, 0.01)), "accuracy": 1 - loss / 2.5}
            reports.append(_report(trial, run, "validation", step, validation))
    for start in range(0, len(reports), 1000):
        store.report_metrics(reports[start : start + 1000])


def _report(trial: TrialRecord, run: int, group: str, step: int, metrics: Mapping[str, float]) -> MetricsReport:
    return MetricsReport(trial_id=trial.id, run_id=run, group=group, steps_completed=step, metrics=metrics)


def _config(name: str, **more: Any) -> dict[str, Any]:
    searcher = {
        "name": "async_halving",
        "metric": "val_loss",
        "smaller_is_better": True,
        "max_length": {"batches": 1600},
    }
    return {
        "name": name,
        "description": "",
        "labels": [],
        "searcher": searcher,
        "hyperparameters": _SPACE,
        "checkpoint_storage": {"type": "shared_fs", "host_path": "/tmp"},
        "resources": {"slots_per_trial": 1},
        "entrypoint": "model_def:MNistTrial",
        **more,
    }


def _experiment(
    store: TrackingStore, name: str, *, owner: str = "ada", version: CodeVersion | None = _VERSION, **more: Any
) -> int:
    config = _config(name, **more)
    text = f"# what a person wrote\nname: {name}\nentrypoint: model_def:MNistTrial\n"
    return store.create_experiment(
        config=config, original_config=text, owner=owner, model_definition=_code(), code_version=version
    ).id


def _code() -> bytes:
    import io
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in (
            ("model_def.py", "import torch\n\n\nclass MNistTrial: ...\n"),
            ("data/labels.txt", "0\n1\n"),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def _hyperparameters() -> dict[str, Any]:
    return {
        "lr": 10 ** random.uniform(-4, -1),
        "width": random.choice([32, 64, 128]),
        "dropout": random.uniform(0, 0.5),
        "optimizer": {"name": random.choice(["adam", "sgd"])},
    }


def _search(store: TrackingStore, trials: int, batches: int) -> int:
    identity = _experiment(
        store, "mnist asha", labels=["mnist", "baseline"], description="Search over learning rates, widths and dropout."
    )
    store.set_experiment_state(identity, State.ACTIVE)
    for number in range(trials):
        trial = store.create_trial(identity, hparams=_hyperparameters(), seed=number, request_id=number)
        run = store.start_run(trial.id, allocation_id=f"a{number}").run_id
        length = batches // 4 ** (2 if number % 4 else 1 if number % 16 else 0)
        store.set_searcher_operation(trial.id, length)
        store.record_machine(trial.id, run, _MACHINE)
        report_curve(store, trial, run, range(10, length + 1, 10), trial.hparams["lr"])
        _checkpoint(store, trial, run, length)
        _logs(store, trial, run, [f"epoch {epoch}: loss={2.3 / (epoch + 1):.4f}" for epoch in range(6)])
        store.set_trial_progress(trial.id, run, 1.0)
        last = store.curves([trial.id], "val_loss", group="validation")[trial.id][-1][1]
        store.complete_searcher_operation(trial.id, run, length, last)
        store.set_trial_state(trial.id, State.COMPLETED)
    store.set_experiment_state(identity, State.COMPLETED)
    store.edit_experiment(identity, notes="The learning rate matters most.\nNext: a wider net.")
    _utilization(store, store.trials(identity)[0])
    return identity


def _checkpoint(store: TrackingStore, trial: TrialRecord, run: int, step: int) -> str:
    uuid = f"{trial.id:08x}-0000-4000-8000-{step:012x}"
    store.begin_checkpoint(uuid, trial_id=trial.id, run_id=run, storage={"type": "shared_fs", "host_path": "/tmp"})
    files = {"metadata.json": 412, "code/": 0, "state.safetensors": 1_204_224 + step}
    store.complete_checkpoint(uuid, run_id=run, steps_completed=step, resources=files, metadata={"framework": "torch"})
    return uuid


def _logs(store: TrackingStore, trial: TrialRecord, run: int, lines: Sequence[str], stdtype: str = "stdout") -> None:
    now = datetime.now(timezone.utc)
    store.add_logs(
        [LogLine(trial_id=trial.id, run_id=run, rank=0, stdtype=stdtype, log=line, time=now) for line in lines]
    )


def _utilization(store: TrackingStore, trial: TrialRecord) -> None:
    start = datetime.now(timezone.utc) - timedelta(minutes=5)
    samples = []
    for second in range(0, 300, 5):
        at = start + timedelta(seconds=second)
        busy = 60 + 30 * math.sin(second / 20)
        for group, values in {
            "cpu": {"cpu_util_simple": busy},
            "memory": {"memory_free": (20.0 - second / 100) * 1e9},
            "network": {"net_throughput_sent": 1000.0 * second, "net_throughput_recv": 2000.0},
            "gpu": {_GPU: {"gpu_util": busy + 5, "gpu_free_memory": 3.2e9}},
        }.items():
            samples.append(
                SystemMetrics(
                    trial_id=trial.id, run_id=trial.run_id or 1, group=group, metrics={"node-1": values}, time=at
                )
            )
    store.report_system_metrics(samples)


def _failed(store: TrackingStore) -> int:
    identity = _experiment(store, "resnet fine-tuning", owner="grace", version=None, labels=["vision"])
    trial = store.create_trial(identity, hparams={"lr": 0.1, "width": 64}, seed=1)
    for number in (1, 2):
        run = store.start_run(trial.id, allocation_id=f"f{number}").run_id
        report_curve(store, trial, run, range(10, 120 * number, 10), 0.1)
        store.report_metrics([_report(trial, run, "validation", 120 * number, {"val_loss": math.nan})])
        _logs(
            store,
            trial,
            run,
            ["Traceback (most recent call last):", "\x1b[31mRuntimeError: CUDA out of memory\x1b[0m"],
            "stderr",
        )
        store.count_restart(trial.id)
    store.set_trial_state(trial.id, State.ERROR)
    error = (
        "trial 41 failed 2 times, more than max_restarts allows: RuntimeError: CUDA out of memory; lower the batch size"
    )
    store.set_experiment_state(identity, State.ERROR, error=error)
    return identity


def _hostile(store: TrackingStore) -> int:
    version = CodeVersion(commit="f" * 64, branch=HOSTILE + LONG, remote=HOSTILE)
    identity = _experiment(
        store, HOSTILE, owner=HOSTILE, version=version, labels=[HOSTILE, UNICODE], description=HOSTILE
    )
    trial = store.create_trial(identity, hparams={HOSTILE: HOSTILE, "=cmd()": "=1+1", "lr": 0.01}, seed=1)
    run = store.start_run(trial.id, allocation_id="h").run_id
    store.record_machine(trial.id, run, Machine(host=HOSTILE + LONG, system=UNICODE, packages={HOSTILE: HOSTILE}))
    store.record_machine(trial.id, run, Machine(host=HOSTILE, node=1))
    store.report_metrics([_report(trial, run, HOSTILE.replace(".", ""), 1, {HOSTILE: 1.0})])
    store.report_metrics([_report(trial, run, "validation", 1, {"val_loss": math.nan})])
    lines = [
        f"\x1b[1;32mgreen\x1b[0m and {HOSTILE}",
        "\x1b]0;title\x07\x1b[2Jcleared \x1b[38;5;196mred of 256\x1b[0m",
        "10 %\r50 %\r100 %",
        UNICODE,
        "x" * 3000,
    ]
    _logs(store, trial, run, lines)
    store.set_trial_state(trial.id, State.CANCELED)
    store.set_experiment_state(identity, State.CANCELED)
    store.edit_experiment(identity, notes=HOSTILE)
    named = _experiment(store, LONG + UNICODE, labels=["a-label-that-is-longer-than-any-label-should-ever-be"])
    store.set_experiment_state(named, State.PAUSED)
    return identity


def _running(store: TrackingStore) -> tuple[int, int]:
    identity = _experiment(store, "transformer on wikitext", labels=["nlp"])
    store.acquire_lease(identity, "node-1:1:1:x", seconds=36000, state=State.ACTIVE)
    for number in range(3):
        trial = store.create_trial(identity, hparams=_hyperparameters(), seed=number, request_id=number)
        run = store.start_run(trial.id, allocation_id=f"r{number}").run_id
        store.set_searcher_operation(trial.id, 1600)
        store.set_trial_state(trial.id, State.ACTIVE)
        report_curve(store, trial, run, range(10, 300 + 100 * number, 10), trial.hparams["lr"])
        store.set_trial_progress(trial.id, run, 0.2 + 0.1 * number)
    store.set_experiment_progress(identity, 0.34)
    return identity, trial.id
