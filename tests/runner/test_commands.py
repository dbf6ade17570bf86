"""Experiments whose entrypoint is a command that starts scripts on the Core API, as real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from det_core.config import parse_config
from det_core.errors import ConfigError
from det_core.interfaces.records import ExperimentRecord, SearcherOperationRecord, State
from det_core.interfaces.search_method import WORST
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner, start_detached, submit_experiment
from det_core.tracking.control import request_experiment_stop

from ..waiting import interrupt_once, is_alive, wait_for
from .experiment_runs import run, the_trial

pytestmark = pytest.mark.integration

Command = Callable[..., ExperimentRecord]
PYTHON = "python3 train.py"
HEAD = """
import json, os, signal, sys, time
from pathlib import Path
import det_core as det
from det_core import core
OUT = Path(os.environ["OUT"])
info = det.get_cluster_info()
"""


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Directory in which scripts leave notes for the test."""
    directory = tmp_path / "out"
    directory.mkdir()
    return directory


@pytest.fixture
def command(store: TrackingStore, context_dir: Path, out: Path) -> Command:
    """Submit a script that follows `HEAD`, with an entrypoint that starts it."""

    def new(script: str, entrypoint: Any = PYTHON, **changes: Any) -> ExperimentRecord:
        (context_dir / "train.py").write_text(HEAD + script)
        config = {
            "name": "script",
            "entrypoint": entrypoint,
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 20}},
            "environment": {"environment_variables": [f"OUT={out}", "COLOR=red"]},
            **changes,
        }
        return submit_experiment(store, parse_config(config), context_dir)

    return new


def last_event(store: TrackingStore, experiment: ExperimentRecord) -> Any:
    """Return the last event of the search method."""
    return store.search_events(experiment.id)[-1].event


def logs(store: TrackingStore, experiment: ExperimentRecord, stdtype: str = "stdout") -> list[tuple[int, str]]:
    lines = store.logs(the_trial(store, experiment).id)
    return [(line.rank, line.log) for line in lines if line.stdtype == stdtype]


SEARCHING = """
with core.init() as context:
    for op in context.searcher.operations():
        print("length", op.length, context.searcher.get_configured_units().value)
        context.train.report_validation_metrics(op.length, {"loss": 0.5})
        op.report_completed(0.25)
"""


FAILING = """
with core.init() as context:
    for batch in range(info.trial.steps_completed + 10, 50, 10):
        if batch == 30: raise RuntimeError(f"broken: {object()}")
        context.train.report_training_metrics(batch, {"loss": 1})
        if SAVES:
            with context.checkpoint.store_path({"steps_completed": batch}): pass
"""


@pytest.mark.parametrize("saves", [False, True])
def test_a_script_ends_at_the_second_identical_failure_after_the_same_report(
    store: TrackingStore, command: Command, saves: bool
) -> None:
    experiment = command(f"SAVES = {saves}{FAILING}", max_restarts=4)
    assert run(store, experiment) is State.ERROR
    assert the_trial(store, experiment).run_id == 2 + saves, "expected two from the same checkpoint"
    error = str(store.experiment(experiment.id).error)
    assert re.fullmatch(r"RuntimeError: broken: <.*> \(batch 20, train.py:\d+\)", error)
    shown = [line for _, line in logs(store, experiment, "stderr")]
    assert sum(line.startswith("Traceback") for line in shown) == 1 + saves


@pytest.mark.parametrize("entrypoint", [PYTHON, ["python3", "train.py"], "cd . && python3 train.py | cat"], ids=str)
def test_a_script_searches(store: TrackingStore, command: Command, entrypoint: Any) -> None:
    experiment = command(SEARCHING, entrypoint)
    assert run(store, experiment) is State.COMPLETED
    trial = the_trial(store, experiment)
    assert (trial.state, trial.run_id, trial.restarts) == (State.COMPLETED, 1, 0)
    assert store.searcher_operation(trial.id) == SearcherOperationRecord(length=20, completed=True, metric=0.25)
    assert logs(store, experiment) == [(0, "length 20 batches")]
    assert last_event(store, experiment) == ["on_validation", 0, 20, 0.25]


def test_a_script_that_uses_no_operations_is_judged_by_its_validation(store: TrackingStore, command: Command) -> None:
    script = "with core.init() as context: context.train.report_validation_metrics(1, {'loss': 0.5})"
    experiment = command(script, searcher={"name": "single", "metric": "loss"})
    assert run(store, experiment) is State.COMPLETED
    assert store.searcher_operation(the_trial(store, experiment).id) is None
    assert last_event(store, experiment) == ["on_validation", 0, None, 0.5]


def test_a_script_without_det_completes(store: TrackingStore, command: Command) -> None:
    experiment = command("", "echo $COLOR $DET_TRIAL_ID; pwd")
    assert run(store, experiment) is State.COMPLETED
    (_, first), (_, directory) = logs(store, experiment)
    assert first == "red 1"
    assert "det-context-" in directory
    assert last_event(store, experiment) == ["on_validation", 0, 20, WORST]


def test_operations_without_max_length_say_what_to_add(store: TrackingStore, command: Command) -> None:
    experiment = command(SEARCHING, searcher={"name": "single", "metric": "loss"}, max_restarts=0)
    assert run(store, experiment) is State.ERROR
    assert "the config's searcher has no max_length; add one" in str(store.experiment(experiment.id).error)


def test_a_trial_class_needs_max_length() -> None:
    with pytest.raises(ConfigError, match=r"searcher\.max_length: a required key is missing"):
        parse_config({"entrypoint": "model_def:T", "searcher": {"name": "single", "metric": "loss"}})


DESCRIBED = """
import shutil
(OUT / "env.json").write_text(json.dumps(dict(os.environ)))
(OUT / "info.json").write_text(json.dumps([info.slot_ids, info.container_addrs, info.container_slot_counts,
    info.trial.trial_id, info.trial.hparams, info.latest_checkpoint, sys.executable, shutil.which("python")]))
"""


@pytest.mark.usefixtures("new_processes")
def test_a_script_receives_environment_and_info_files(store: TrackingStore, command: Command, out: Path) -> None:
    changes = {
        "hyperparameters": {"lr": 0.1},
        "reproducibility": {"experiment_seed": 7},
        "resources": {"slots_per_trial": 2},
        "launcher": {"type": "local", "slots": 2},
    }
    experiment = command(DESCRIBED, **changes)
    assert run(store, experiment) is State.COMPLETED
    env = json.loads((out / "env.json").read_text())
    run_record = store.run(1, 1)
    expected = {
        "COLOR": "red",
        "DET_CHIEF_IP": "127.0.0.1",
        "DET_CLUSTER_ID": store.cluster_id,
        "DET_AGENT_ID": "local",
        "DET_TASK_TYPE": "TRIAL",
        "DET_TASK_ID": the_trial(store, experiment).task_id,
        "DET_ALLOCATION_ID": run_record.allocation_id,
        "DET_SLOT_IDS": "[0, 1]",
        "DET_TRIAL_ID": "1",
        "DET_EXPERIMENT_ID": str(experiment.id),
        "DET_TRIAL_SEED": "7",
        "DET_TRIAL_RUN_ID": "1",
        "DET_STEPS_COMPLETED": "0",
        "DET_HPARAMS": '{"lr": 0.1}',
    }
    assert {name: env.get(name) for name in expected} == expected
    assert "DET_LATEST_CHECKPOINT" not in env
    assert json.loads(env["DET_EXPERIMENT_CONFIG"]) == store.experiment(experiment.id).config
    assert len(env["DET_COMM_KEY"]) == 64
    here = str(Path(sys.executable).parent)
    assert env["PATH"].startswith(here + os.pathsep)
    *described, executable, python = json.loads((out / "info.json").read_text())
    assert described == [[0, 1], ["127.0.0.1"], [2], 1, {"lr": 0.1}, None]
    assert executable.startswith(here)
    assert python.startswith(here)


def test_a_config_too_long_for_the_environment_is_omitted(store: TrackingStore, command: Command, out: Path) -> None:
    experiment = command(DESCRIBED, data={"much": "x" * 200_000})
    assert run(store, experiment) is State.COMPLETED
    assert "DET_EXPERIMENT_CONFIG" not in json.loads((out / "env.json").read_text())
    assert any("DET_EXPERIMENT_CONFIG is too long" in text for _, text in logs(store, experiment, "det"))


@pytest.mark.parametrize(
    ("entrypoint", "code"),
    [("nothing --x", 127), (["nothing", "--x"], 127), ("./train.py", 126), (["./train.py"], 126)],
    ids=str,
)
def test_a_program_that_does_not_start_is_reported_and_not_retried(
    store: TrackingStore, command: Command, entrypoint: Any, code: int
) -> None:
    experiment = command("", entrypoint)
    assert run(store, experiment) is State.ERROR
    error = str(store.experiment(experiment.id).error)
    tried = entrypoint if isinstance(entrypoint, str) else " ".join(entrypoint)
    assert f"the entrypoint {tried!r} could not be started (exit code {code}: " in error
    assert str(Path(sys.executable).parent) in error
    assert the_trial(store, experiment).run_id == 1


def test_a_script_that_fails_is_started_again(store: TrackingStore, command: Command, out: Path) -> None:
    script = """
with core.init() as context:
    if info.latest_checkpoint is None:
        with context.checkpoint.store_path({"steps_completed": 7}) as (path, uuid):
            (path / "state").write_text("seven")
        raise RuntimeError("boom")
    with context.checkpoint.restore_path(info.latest_checkpoint) as path:
        (OUT / "state").write_text((path / "state").read_text())
    (OUT / "run").write_text(f"{os.environ['DET_TRIAL_RUN_ID']} {os.environ['DET_STEPS_COMPLETED']} "
                             f"{os.environ['DET_LATEST_CHECKPOINT'] == info.latest_checkpoint}")
"""
    experiment = command(script)
    assert run(store, experiment) is State.COMPLETED
    assert the_trial(store, experiment).restarts == 1
    assert (out / "state").read_text() == "seven"
    assert (out / "run").read_text() == "2 7 True"


def test_a_script_that_fails_twice_before_training_is_not_started_again(store: TrackingStore, command: Command) -> None:
    experiment = command("print(info.trial.hparams['lr'])")
    assert run(store, experiment) is State.ERROR
    assert the_trial(store, experiment).run_id == 2
    assert store.experiment(experiment.id).error == "KeyError: 'lr'"
    assert "it failed in the same way twice" in logs(store, experiment, "det")[-1][1]


def test_a_restarted_script_does_not_repeat_completed_operations(store: TrackingStore, command: Command) -> None:
    script = SEARCHING + "    if info.trial.trial_run_id == 1: raise RuntimeError('after the last operation')"
    experiment = command(script)
    assert run(store, experiment) is State.COMPLETED
    assert [text for _, text in logs(store, experiment)] == ["length 20 batches"]
    assert the_trial(store, experiment).restarts == 1


COUNTING = """
with core.init() as context:
    batches = info.trial.steps_completed
    print("from", batches)
    for op in context.searcher.operations():
        while batches < op.length:
            batches += 1
            (OUT / "counting").touch()
            time.sleep(0.1)
            if context.preempt.should_preempt():
                with context.checkpoint.store_path({"steps_completed": batches}) as (path, uuid):
                    (path / "state").write_text(str(batches))
                sys.exit()
        op.report_completed(0.5)
"""


def test_a_paused_script_resumes_from_its_checkpoint(store: TrackingStore, command: Command, out: Path) -> None:
    experiment = command(COUNTING)
    interrupt_once((out / "counting").exists)
    assert run(store, experiment) is State.PAUSED
    trial = the_trial(store, experiment)
    assert 0 < trial.steps_completed < 20
    assert run(store, experiment) is State.COMPLETED
    assert [text for _, text in logs(store, experiment)] == ["from 0", f"from {trial.steps_completed}"]
    assert the_trial(store, experiment).restarts == 0


def test_a_pause_after_the_last_operation_does_not_lose_the_code_that_follows(
    store: TrackingStore, command: Command, out: Path
) -> None:
    script = (
        SEARCHING
        + """
    (OUT / "completed").touch()
    while info.trial.trial_run_id == 1 and not context.preempt.should_preempt():
        time.sleep(0.05)
    if info.trial.trial_run_id == 2:
        (OUT / "tested").touch()
"""
    )
    experiment = command(script)
    interrupt_once((out / "completed").exists)
    assert run(store, experiment) is State.PAUSED
    assert run(store, experiment) is State.COMPLETED
    assert (out / "tested").exists()


def test_a_pause_while_the_last_operation_finishes_does_not_start_the_trial_again(
    store: TrackingStore, command: Command, out: Path
) -> None:
    script = (
        SEARCHING
        + """
    (OUT / "completed").touch()
    while not (OUT / "asked").exists():
        time.sleep(0.05)
"""
    )
    experiment = command(script)
    runner = ExperimentRunner(store, experiment.id)

    def pause() -> None:
        wait_for((out / "completed").exists)
        os.kill(os.getpid(), signal.SIGINT)
        wait_for(lambda: bool(runner.signals))
        (out / "asked").touch()

    threading.Thread(target=pause, daemon=True).start()
    assert runner.run() is State.PAUSED
    reported = list(store.metrics(the_trial(store, experiment).id))
    assert len(reported) == 1
    assert run(store, experiment) is State.COMPLETED
    assert the_trial(store, experiment).run_id == 1
    assert list(store.metrics(the_trial(store, experiment).id)) == reported


def test_invalid_hyperparameters_end_a_script(store: TrackingStore, command: Command) -> None:
    experiment = command("with core.init() as context: raise det.InvalidHP('too deep')")
    assert run(store, experiment) is State.COMPLETED
    assert store.run(1, 1).early_exit == "EXITED_REASON_INVALID_HP"


def test_output_may_have_bars_long_lines_and_foreign_bytes(store: TrackingStore, command: Command) -> None:
    script = r"""
import sys
for percent in range(101):
    sys.stderr.write(f"\r{percent}%|bar")
sys.stderr.write("\n")
sys.stdout.buffer.write(b"caf\xc3\xa9 \xff\n" + b"x" * 100_000 + b"\n[rank=3] hello\nlast")
"""
    experiment = command(script)
    assert run(store, experiment) is State.COMPLETED
    assert logs(store, experiment, "stderr") == [(0, "100%|bar")]
    (_, accent), *pieces, ranked, last = logs(store, experiment)
    assert accent == "café �"
    assert "".join(text for _, text in pieces) == "x" * 100_000
    assert (ranked, last) == ((3, "hello"), (0, "last"))


def test_a_launcher_with_too_few_slots_pauses_the_experiment(store: TrackingStore, command: Command) -> None:
    experiment = command("", resources={"slots_per_trial": 3})
    assert run(store, experiment) is State.PAUSED
    error = str(store.experiment(experiment.id).error)
    assert "needs 3 slots, but the launcher has" in error
    assert logs(store, experiment, "det")[1:] == [(0, f"run 1 of trial 1 could not be started: {error}")]


# The stray process has its own session, like the workers of torchrun, and knows nothing of det.
TREE = """
import subprocess
stray = subprocess.Popen(["sleep", "1000"], start_new_session=True)
(OUT / "pids").write_text(f"{os.getpid()} {stray.pid}")
time.sleep(1000)
"""


@pytest.mark.slow
def test_no_process_outlives_the_runner(store: TrackingStore, command: Command, out: Path) -> None:
    experiment = command(TREE)
    start_detached(store, experiment.id)
    wait_for(lambda: (out / "pids").exists() and len((out / "pids").read_text().split()) == 2)
    pids = (out / "pids").read_text().split()
    os.kill(int(str(store.lease_holder(experiment.id)).rsplit(":", 3)[1]), signal.SIGKILL)
    wait_for(lambda: not any(map(is_alive, map(int, pids))), seconds=60)


@pytest.mark.slow
def test_no_process_outlives_the_runner_and_the_guard(store: TrackingStore, command: Command, out: Path) -> None:
    experiment = command(
        TREE.replace("(OUT /", "info.trial.trial_run_id == 1 or sys.exit()\n(OUT /"), f"{PYTHON}; exit"
    )
    start_detached(store, experiment.id)
    wait_for(lambda: (out / "pids").exists() and len((out / "pids").read_text().split()) == 2)
    pids = (out / "pids").read_text().split()
    runner = psutil.Process(int(str(store.lease_holder(experiment.id)).rsplit(":", 3)[1]))
    (guard,) = runner.children()
    for process in (runner, guard):
        process.kill()
    psutil.wait_procs([runner, guard], timeout=60)  # a runner that is still ending holds its lease
    wait_for(lambda: not any(map(is_alive, map(int, pids))), seconds=60)
    assert run(store, experiment) is State.COMPLETED
    assert the_trial(store, experiment).restarts == 0


@pytest.mark.usefixtures("new_processes")
def test_no_process_outlives_a_kill(store: TrackingStore, command: Command, out: Path) -> None:
    experiment = command(TREE)

    def kill() -> None:
        wait_for(lambda: (out / "pids").exists() and len((out / "pids").read_text().split()) == 2)
        store.set_experiment_state(experiment.id, State.STOPPING_KILLED)

    threading.Thread(target=kill, daemon=True).start()
    assert run(store, experiment) is State.CANCELED
    assert not any(map(is_alive, map(int, (out / "pids").read_text().split())))


@pytest.mark.campaign
def test_a_worker_that_prints_without_end_is_killed_and_fills_no_memory(store: TrackingStore, command: Command) -> None:
    experiment = command("", entrypoint=["yes", "x" * 1000])
    process = psutil.Process()
    grown: list[int] = []

    def kill() -> None:
        latest = partial(store.latest_logs, experiment.id)
        wait_for(lambda: max(latest().values(), default=0) > 10_000)
        before = process.memory_info().rss
        wait_for(lambda: max(latest().values(), default=0) > 60_000)
        grown.append(process.memory_info().rss - before)
        request_experiment_stop(store, experiment.id, State.STOPPING_KILLED)

    asking = threading.Thread(target=kill)
    asking.start()
    assert run(store, experiment) is State.CANCELED
    asking.join()
    assert grown[0] < 32 << 20


@pytest.mark.usefixtures("new_processes")
def test_no_process_outlives_its_command(store: TrackingStore, command: Command, out: Path) -> None:
    experiment = command(TREE.replace("time.sleep(1000)", "sys.exit()"))
    assert run(store, experiment) is State.COMPLETED
    assert not any(map(is_alive, map(int, (out / "pids").read_text().split())))


# Starts three processes as a launcher would, each with its rank.
SEVERAL = 'for r in 0 1 2; do RANK=$r python3 train.py 2>&1 | sed -u "s/^/[rank=$r] /" & done; wait'


def test_log_lines_have_the_ranks_of_several_processes(store: TrackingStore, command: Command) -> None:
    experiment = command("print('hello from', os.environ['RANK'])", SEVERAL)
    assert run(store, experiment) is State.COMPLETED
    assert sorted(logs(store, experiment)) == [(rank, f"hello from {rank}") for rank in range(3)]


def test_every_process_that_enters_the_context_is_requested_to_stop(
    store: TrackingStore, command: Command, out: Path
) -> None:
    script = """
with core.init() as context:
    (OUT / os.environ["RANK"]).touch()
    while info.trial.trial_run_id == 1 and not context.preempt.should_preempt():
        time.sleep(0.05)
    print("left")
"""
    experiment = command(script, SEVERAL)
    interrupt_once(lambda: len(list(out.iterdir())) == 3)
    assert run(store, experiment) is State.PAUSED
    assert sorted(logs(store, experiment)) == [(rank, "left") for rank in range(3)]
    assert run(store, experiment) is State.COMPLETED


TORCHRUN = "torchrun --standalone --nproc-per-node 2 --tee 3 train.py"
WORKERS = """
distributed = core.DistributedContext.from_torch_distributed()
rank = distributed.rank
with core.init(distributed=distributed) as context:
    print("rank", rank, "of", distributed.size, "in run", info.trial.trial_run_id, flush=True)
"""


@pytest.fixture
def torchrun(command: Command) -> Command:
    pytest.importorskip("torch")
    return lambda body, **changes: command(WORKERS + body, TORCHRUN, resources={"slots_per_trial": 0}, **changes)


@pytest.mark.slow
def test_workers_of_torchrun_search_and_stop_together(store: TrackingStore, torchrun: Command, out: Path) -> None:
    body = """
    for op in context.searcher.operations():
        if info.trial.trial_run_id == 1:
            (OUT / f"waiting_{rank}").touch()
            while not context.preempt.should_preempt():
                time.sleep(0.05)
            sys.exit()
        if rank == 0:
            op.report_completed(0.5)
"""
    experiment = torchrun(body)
    interrupt_once(lambda: len(list(out.glob("waiting_*"))) == 2)
    assert run(store, experiment) is State.PAUSED
    assert run(store, experiment) is State.COMPLETED
    assert sorted(logs(store, experiment)) == [
        (rank, f"rank {rank} of 2 in run {number}") for rank in (0, 1) for number in (1, 2)
    ]
    assert store.searcher_operation(1) == SearcherOperationRecord(length=20, completed=True, metric=0.5)
    assert the_trial(store, experiment).restarts == 0


@pytest.mark.slow
def test_invalid_hyperparameters_of_one_worker_end_all_workers(store: TrackingStore, torchrun: Command) -> None:
    experiment = torchrun("    if rank == 1: raise det.InvalidHP('too deep')\n    distributed.allgather(rank)")
    assert run(store, experiment) is State.COMPLETED
    assert store.run(1, 1).early_exit == "EXITED_REASON_INVALID_HP"
    assert the_trial(store, experiment).run_id == 1


@pytest.mark.slow
def test_the_error_is_that_of_the_worker_that_failed_first(store: TrackingStore, torchrun: Command) -> None:
    body = "    if rank == 1: raise RuntimeError('boom')\n    distributed.allgather(rank)"
    experiment = torchrun(body, max_restarts=0)
    assert run(store, experiment) is State.ERROR
    assert store.experiment(experiment.id).error == "RuntimeError: boom"


@pytest.mark.soak
def test_no_worker_of_torchrun_outlives_the_runner(store: TrackingStore, torchrun: Command, out: Path) -> None:
    experiment = torchrun("    (OUT / str(os.getpid())).touch()\n    time.sleep(1000)")
    start_detached(store, experiment.id)
    wait_for(lambda: len(list(out.iterdir())) == 2, seconds=60)
    os.kill(int(str(store.lease_holder(experiment.id)).rsplit(":", 3)[1]), signal.SIGKILL)
    wait_for(lambda: not any(is_alive(int(path.name)) for path in out.iterdir()), seconds=60)
