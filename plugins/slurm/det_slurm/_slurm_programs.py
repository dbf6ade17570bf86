"""Calls of Slurm's programs other than srun."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable

from det_core.errors import LaunchDelayed, LaunchError

_SECONDS = 30.0
"""Time limit of a call."""
_COMPLETING_SECONDS = 10.0
_COMPLETING_TICK = 0.5
STORE_VARIABLE = "DET_SLURM_STORE"
"""Environment variable of a submitted runner with the URL of its tracking store."""
IN_ALLOCATION = "SLURM_JOB_ID"
"""Environment variable of processes in an allocation."""


def run_program(*command: str, given: str | None = None) -> str:
    """Run a program of Slurm and return its output.

    Args:
        command: the program and its arguments.
        given: text for its stdin.

    Raises:
        LaunchError: it is missing.
        LaunchDelayed: it failed, or did not end in time.
    """
    try:
        ran = subprocess.run(
            command,
            input=given or "",
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS,
            check=True,
        )
    except FileNotFoundError:
        raise LaunchError(explain_missing_program(command[0])) from None
    except subprocess.TimeoutExpired:
        problem = f"{command[0]} did not answer within {_SECONDS:.0f} s"
        raise LaunchDelayed(f"{problem}; check Slurm with: scontrol ping") from None
    except (OSError, subprocess.CalledProcessError) as error:
        said = " ".join((getattr(error, "stderr", None) or str(error)).split())
        raise LaunchDelayed(f"{command[0]} failed: {said}") from error
    return ran.stdout


def explain_missing_program(name: str) -> str:
    """Return the error for a program of Slurm that is not on PATH."""
    return f"{name} was not found; run det on a login node of the cluster, or load Slurm, as with: module load slurm"


def read_job(job: str) -> dict[str, str]:
    """Return what the controller knows about a job, such as ``JobState`` and ``Reason``.

    Raises:
        LaunchError: it does not answer, or has forgotten the job.
    """
    words = run_program("scontrol", "show", "job", "--oneliner", job).split()
    return {key: value for key, _, value in (word.partition("=") for word in words)}


def read_ended_job(job: str) -> dict[str, str]:
    """Return the same as `read_job`, after up to 10 s in which a job that completes hides its final state.

    Raises:
        LaunchError: as `read_job`.
    """
    deadline = time.monotonic() + _COMPLETING_SECONDS
    while (found := read_job(job)).get("JobState") == "COMPLETING" and time.monotonic() < deadline:
        time.sleep(_COMPLETING_TICK)
    return found


def read_reasons(jobs: Iterable[str]) -> dict[str, str]:
    """Return the reasons for which jobs wait.

    Raises:
        LaunchError: the controller does not answer.
    """
    lines = run_program("squeue", "--noheader", f"--jobs={','.join(jobs)}", "--format=%i %r").splitlines()
    return dict(line.split(maxsplit=1) for line in lines if " " in line.strip())


def cancel_jobs(name: str, *, steps_of: str | None = None) -> None:
    """Cancel all jobs of this user that have a name, or one that begins with it and ``-``.

    Args:
        name: the name.
        steps_of: job whose steps are canceled in place of jobs.

    Raises:
        LaunchError: the controller does not answer.
    """
    which = ["--steps", f"--jobs={steps_of}"] if steps_of else [f"--user={os.getuid()}"]
    lines = run_program("squeue", "--noheader", *which, "--format=%i %j").splitlines()
    found = [job for job, _, its in (line.partition(" ") for line in lines) if f"{its}-".startswith(f"{name}-")]
    if found:
        run_program("scancel", "--quiet", *found)
