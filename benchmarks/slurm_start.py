"""Time from the start of a Slurm job to the first batch, with det and with ``srun python train.py``.

It starts Slurm's daemons on loopback, and needs root and the packages of plugins/slurm/tests/cluster.py.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "plugins" / "slurm" / "tests"))
os.environ["PATH"] += ":/usr/sbin:/sbin"

from cluster import missing, slurm_cluster

from det_core.config import parse_config
from det_core.runner import ExperimentRunner, submit_experiment
from det_core.tracking import open_store

ROUNDS = 7
PROLOG = '#!/bin/sh\necho "print STARTED $(date +%s.%N)"\n'
PLAIN = "import time\nprint('FIRST', time.time(), flush=True)\n"
TRIAL = """
import time
from det_core import core
with core.init() as context:
    print("FIRST", time.time(), flush=True)
    context.train.report_validation_metrics(steps_completed=1, metrics={"loss": 1.0})
"""


def seconds_between(text: str) -> float:
    """Return the seconds from the start of the job to the first batch."""
    started, first = (float(re.findall(rf"{word} ([\d.]+)", text)[0]) for word in ("STARTED", "FIRST"))
    return first - started


def main() -> None:
    """Measure both alternately, and print the medians."""
    if why := missing():
        sys.exit(why)
    found: dict[str, list[float]] = {"srun python train.py": [], "det run": []}
    with tempfile.TemporaryDirectory() as name, slurm_cluster() as cluster:
        directory = Path(name)
        os.environ.update(cluster.variables, DET_HOME=str(directory / "home"))
        prolog, code = directory / "prolog", directory / "code"
        prolog.write_text(PROLOG)
        prolog.chmod(0o755)
        code.mkdir()
        (code / "train.py").write_text(TRIAL)
        (directory / "train.py").write_text(PLAIN)
        options = [f"--task-prolog={prolog}"]
        config = {
            "entrypoint": "python3 train.py",
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
            "launcher": {"type": "slurm", "options": options},
        }
        with open_store() as store:
            for _ in range(ROUNDS):
                command = ["srun", *options, sys.executable, str(directory / "train.py")]
                ran = subprocess.run(command, capture_output=True, text=True, check=True)
                found["srun python train.py"].append(seconds_between(ran.stdout))
                experiment = submit_experiment(store, parse_config(config), code)
                ExperimentRunner(store, experiment.id).run()
                (trial,) = store.trials(experiment.id)
                log = "\n".join(line.log for line in store.logs(trial.id))
                found["det run"].append(seconds_between(log))
    medians = {what: statistics.median(values) for what, values in found.items()}
    for what, median in medians.items():
        print(f"{what}: {median:.2f} s from the start of the job to the first batch ({min(found[what]):.2f} at best)")
    difference = medians["det run"] - medians["srun python train.py"]
    print(f"difference: {difference:.2f} s (limit 0.50 s)")


if __name__ == "__main__":
    main()
