"""A runner in a process of its own, which outlives the terminal."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from det_core.errors import LaunchError
from det_core.home import home, private_directory
from det_core.interfaces.tracking import TrackingStore

FROM_BEGINNING = "--from-beginning"
_PATIENCE = 30.0


def start_detached(store: TrackingStore, experiment_id: int, *, from_beginning: bool = False) -> None:
    """Start a runner in a new session; returns once it holds the experiment, or has finished.

    Args:
        from_beginning: as for `ExperimentRunner`.

    Raises:
        LaunchError: it ended with an error before that, or did not get ready in time.
    """
    directory = private_directory("runners")
    log = directory / f"{experiment_id}-of-{store.cluster_id}.log"
    options = [FROM_BEGINNING] if from_beginning else []
    with log.open("ab") as output:
        begin = output.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "det_core.runner", str(experiment_id), *options],
            cwd=directory,  # -m imports from there; the caller's directory may have a queue.py
            env={**os.environ, "DET_HOME": str(home())},  # which may be relative
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    assert process.stdin
    with suppress(BrokenPipeError), process.stdin as pipe:  # it may have ended; the reason is in its log
        pipe.write(f"{store.url}\n".encode())  # all users of this host can read arguments
    threading.Thread(target=process.wait, daemon=True).start()  # no zombie where this process lives on
    deadline = time.monotonic() + _PATIENCE
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
    raise LaunchError(f"the runner of experiment {experiment_id} was not ready within {_PATIENCE:.0f} s; see {log}")


def _text_from(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(begin)
        return file.read().decode(errors="replace").strip()
