"""Faults of the campaign. Each is injected into a running search, whose results must not change."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import psutil

from .rounds import Fault, Round


def kill_process(attacked: Round) -> str | None:
    """Send SIGKILL or SIGTERM to a random process."""
    victim, number = _any_process(attacked), attacked.chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
    if victim is None:
        return None
    name = _role(victim)
    with suppress(psutil.NoSuchProcess):
        victim.send_signal(number)
    return f"sent {number.name} to {name}"


def stop_process(attacked: Round) -> str | None:
    """Stop a random process by SIGSTOP for some seconds."""
    victim, seconds = _any_process(attacked), attacked.chance.uniform(0.2, 3)
    if victim is None:
        return None
    name = _role(victim)
    with suppress(psutil.NoSuchProcess):
        victim.suspend()
        time.sleep(seconds)
        victim.resume()
    return f"stopped {name} for {seconds:.1f} s"


def flip_byte(attacked: Round) -> str | None:
    """Change one bit of a file of a checkpoint, and restart the trials, so that one of them reads it."""

    def flip(files: list[Path]) -> str:
        file = attacked.chance.choice(files)
        content = bytearray(file.read_bytes())
        place = attacked.chance.randrange(len(content))
        content[place] ^= 1 << attacked.chance.randrange(8)
        file.chmod(0o600)
        file.write_bytes(content)
        return f"changed byte {place} of {file.relative_to(attacked.checkpoints)}"

    return _damage(attacked, flip)


def delete_file(attacked: Round) -> str | None:
    """Delete a file of a checkpoint or the whole checkpoint, and restart the trials, so that one of them needs it."""

    def delete(files: list[Path]) -> str:
        victim = attacked.chance.choice([*files, files[0].parent])
        shutil.rmtree(victim) if victim.is_dir() else victim.unlink()
        return f"deleted {victim.relative_to(attacked.checkpoints)}"

    return _damage(attacked, delete)


def fill_disk(attacked: Round) -> str | None:
    """Fill the disk of checkpoints for some seconds."""
    if not attacked.disk.is_mount():
        return "did not fill the disk, because no small disk can be mounted here"
    ballast, seconds = attacked.disk / "ballast", attacked.chance.uniform(0.5, 2)
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    time.sleep(seconds)
    ballast.unlink()
    return f"filled the disk for {seconds:.1f} s"


def stop_database(attacked: Round) -> str | None:
    """Stop the PostgreSQL server, or lock the SQLite database, for some seconds."""
    seconds = attacked.chance.uniform(0.5, 4)
    if attacked.server:
        attacked.server.stop()
        time.sleep(seconds)
        attacked.server.start()
        return f"stopped PostgreSQL for {seconds:.1f} s"
    with closing(sqlite3.connect(attacked.store.url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
        connection.execute("PRAGMA busy_timeout = 60000")
        connection.execute("BEGIN IMMEDIATE")
        time.sleep(seconds)
        connection.execute("ROLLBACK")
    return f"locked SQLite for {seconds:.1f} s"


def wipe_temporary_directory(attacked: Round) -> str | None:
    """Remove everything in the temporary directory, as a cleaner of the machine would."""
    found = sorted(attacked.temporary.iterdir())
    for path in found:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    return f"wiped {', '.join(path.name for path in found) or 'an empty temporary directory'}"


FAULTS = {
    "kill": Fault(kill_process, may_end_runner=True),
    "stop": Fault(stop_process),
    "flip": Fault(flip_byte),
    "delete": Fault(delete_file),
    "fill": Fault(fill_disk, may_end_runner=True),  # a runner tests the storage when it starts
    "database": Fault(stop_database),
    "wipe": Fault(wipe_temporary_directory),
}


def _any_process(attacked: Round) -> psutil.Process | None:
    processes = sorted(attacked.processes(), key=lambda process: process.pid)
    return attacked.chance.choice(processes) if processes else None


def _role(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        command = " ".join(process.cmdline())
        for part, name in [("_guard", "a guard"), ("launch.worker", "a worker"), ("det_core.runner", "the runner")]:
            if part in command:
                return name
        return command
    return "an ending process"


def _damage(attacked: Round, change: Callable[[list[Path]], str]) -> str | None:
    """Change the files of a checkpoint while no worker runs, then kill all workers."""
    workers = [process for process in attacked.processes() if _role(process) == "a worker"]
    for worker in workers:  # so that no newer checkpoint appears
        with suppress(psutil.NoSuchProcess):
            worker.suspend()
    files = _files_to_damage(attacked)
    done = change(files) if files else None
    for worker in workers:
        with suppress(psutil.NoSuchProcess):
            worker.kill() if done else worker.resume()
    return done and f"{done}, killed the workers"


def _files_to_damage(attacked: Round) -> list[Path]:
    """Choose one of a trial's two newest checkpoints, unless it is the last intact one, and return its files."""
    store = attacked.store
    candidates = []
    for trial in store.trials(attacked.experiment_id):
        intact = [row for row in store.checkpoints(trial_id=trial.id) if row.uuid not in attacked.damaged]
        if len(intact) > 1 and not trial.state.final:
            candidates += [intact[-2], *[intact[-1]] * 3]  # the trial resumes from the newest one
    if not candidates:
        return []
    chosen = attacked.chance.choice(candidates).uuid
    attacked.damaged.add(chosen)
    return sorted(path for path in (attacked.checkpoints / chosen).rglob("*") if path.is_file())
