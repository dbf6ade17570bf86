"""Runner in a detached process that outlives the terminal."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from det_core.errors import LaunchError
from det_core.home import home_directory, private_directory
from det_core.interfaces.tracking import TrackingStore

FROM_BEGINNING = "--from-beginning"
"""Command-line option of the detached runner."""
_START_SECONDS = 90.0
"""Seconds that a new runner may take to acquire the lease of its experiment. It waits 60 s for a locked database."""


def start_detached(store: TrackingStore, experiment_id: int, *, from_beginning: bool = False) -> None:
    """Start a runner in a new session, and wait until it holds the experiment or has finished.

    Args:
        store: the tracking store of the experiment.
        experiment_id: the experiment to run.
        from_beginning: as for `ExperimentRunner`.

    Raises:
        LaunchError: the runner failed before that, or was not ready in time.
    """
    directory = private_directory("runners")
    log = directory / f"{experiment_id}-of-{store.cluster_id}.log"
    options = [FROM_BEGINNING] if from_beginning else []
    with log.open("ab") as output:
        begin = output.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "det_core.runner", str(experiment_id), *options],
            cwd=directory,  # -m imports modules from here, and the caller's directory may contain a queue.py
            env={**os.environ, "DET_HOME": str(home_directory())},  # DET_HOME may be relative
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    assert process.stdin
    with suppress(BrokenPipeError), process.stdin as pipe:  # the runner has ended, and its log says why
        pipe.write(f"{store.url}\n".encode())  # not an argument, as all users of the host can read those
    threading.Thread(target=process.wait, daemon=True).start()  # reap the runner if this process outlives it
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        holder = store.lease_holder(experiment_id)
        if holder and f":{process.pid}:" in holder:
            return
        if process.poll() is not None:
            if process.returncode == 0:
                return
            raise LaunchError(f"the runner of experiment {experiment_id} failed: {_text_from(log, begin)}")
        time.sleep(0.05)
    process.kill()
    raise LaunchError(
        f"the runner of experiment {experiment_id} was not ready within {_START_SECONDS:.0f} s; see {log}, and to try "
        f"again: det experiment resume {experiment_id}"
    )


def _text_from(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(begin)
        return file.read().decode(errors="replace").strip()
