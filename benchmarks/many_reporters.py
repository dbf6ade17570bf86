"""Load of one runner by many workers that report metrics at the same time.

Each worker is a script with the Core API that reports RATE times per second, on the local launcher. The runner is in
another process. Nothing may be lost, whether the runner keeps up or not.

python benchmarks/many_reporters.py [WORKERS [RATE]]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from det_core.config import parse_config
from det_core.interfaces.records import TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner, submit_experiment
from det_core.tracking import open_store

SECONDS = 20
"""Time for which the workers report."""
WORKER = """
import json, os, sys, time
from pathlib import Path
from det_core import core

rate, seconds = int(sys.argv[1]), int(sys.argv[2])
with core.init() as context:
    context.train.set_status("ready")
    while not Path(os.environ["DET_HOME"], "go").exists():
        time.sleep(0.2)
    start, cpu = time.perf_counter(), time.process_time()
    for step in range(rate * seconds):
        context.train.report_training_metrics(step, {"loss": 1 / (step + 1), "accuracy": 0.5})
        time.sleep(max(0.0, start + step / rate - time.perf_counter()))
    reported = time.perf_counter() - start
    context.train.flush()
    written = time.perf_counter() - start
    context.train.set_metadata({"cpu": time.process_time() - cpu, "reported": reported, "written": written})
"""


def submit(store: TrackingStore, directory: Path, workers: int, rate: int) -> int:
    """Submit an experiment whose trials report, and return its id."""
    code = directory / "code"
    code.mkdir()
    (code / "worker.py").write_text(WORKER)
    config = {
        "entrypoint": [sys.executable, "worker.py", str(rate), str(SECONDS)],
        "searcher": {"name": "random", "metric": "loss", "max_trials": workers, "max_concurrent_trials": workers},
        "hyperparameters": {"x": {"type": "double", "minval": 0, "maxval": 1}},
        "launcher": {"type": "local", "slots": workers},
        "max_restarts": 0,
    }
    return submit_experiment(store, parse_config(config), code).id


def measure(store: TrackingStore, experiment: int, home: Path, workers: int) -> tuple[float, list[TrialRecord]]:
    """Run an experiment, and return the CPU seconds of its runner while the workers report, and the trials."""
    cpu: list[float] = []

    def tick() -> None:
        trials = store.trials(experiment)
        if not cpu and len(trials) == workers and all(trial.runner_state == "ready" for trial in trials):
            cpu.append(time.process_time())
            (home / "go").touch()
        elif len(cpu) == 1 and all(trial.metadata for trial in trials):
            cpu.append(time.process_time())

    ExperimentRunner(store, experiment).run(tick)
    return cpu[-1] - cpu[0], store.trials(experiment)


def main(workers: int = 64, rate: int = 100) -> None:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        os.environ |= {"DET_HOME": name, "DET_SLOTS_DIR": f"{name}/slots"}
        with open_store() as store:
            experiment = submit(store, home, workers, rate)
            cpu, trials = measure(store, experiment, home, workers)
            kept = [sum(1 for _ in store.metrics(trial.id, group="training")) for trial in trials]
            logs = {line.log for trial in trials for line in store.logs(trial.id) if line.stdtype == "stderr"}
    reported, written, own = (max(trial.metadata[key] for trial in trials) for key in ("reported", "written", "cpu"))
    expected = workers * rate * SECONDS
    print(f"{workers} workers, {rate} reports per second each, for {SECONDS} s")
    print(f"  lost                {expected - sum(kept)} of {expected}")
    print(f"  last report         after {reported:.1f} s")
    print(f"  all written         after {written:.1f} s, {expected / written:,.0f} reports/s")
    print(f"  CPU of the runner   {cpu:.1f} s, {1e6 * cpu / expected:.0f} us per report")
    print(f"  CPU of a worker     {own:.1f} s at most, {1e6 * own / (rate * SECONDS):.0f} us per report")
    for line in sorted(logs):
        print(f"  {line}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
