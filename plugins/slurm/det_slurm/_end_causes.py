"""Causes of ends by the states of jobs and the messages of ``srun``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from det_core import __version__
from det_core.interfaces.launcher import Cause

STATES = {
    "BOOT_FAIL": Cause.NODE_LOST,
    "CANCELLED": Cause.CANCELED,
    "DEADLINE": Cause.TIME_LIMIT,
    "NODE_FAIL": Cause.NODE_LOST,
    "OUT_OF_MEMORY": Cause.OUT_OF_MEMORY,
    "PREEMPTED": Cause.PREEMPTED,
    "REVOKED": Cause.CANCELED,
    "TIMEOUT": Cause.TIME_LIMIT,
}
"""Causes by the final state of a job, ``JobState`` of ``scontrol show job``. Other states leave the cause to the node
agents."""
_STEP_ENDS = {
    "DUE TO TIME LIMIT": Cause.TIME_LIMIT,
    "DUE TO PREEMPTION": Cause.PREEMPTED,
    "DUE TO NODE FAILURE": Cause.NODE_LOST,
    "DUE TO JOB REQUEUE": Cause.PREEMPTED,
    "oom.kill event": Cause.OUT_OF_MEMORY,  # with a hyphen or an underscore, by the release of Slurm
    "xceeded .*memory limit": Cause.OUT_OF_MEMORY,  # OverMemoryKill, after which the job is FAILED
    "CANCELLED AT": Cause.CANCELED,
}
"""Causes by what ``slurmstepd`` says about a step, whose state nobody knows after its end. The first match counts."""
_NEVER = "None"
_NO_REASONS = ("", "None", "(null)")
_REFUSALS = {
    r"partition (name )?specified": "choose another launcher.partition; `sinfo` lists all",
    r"Invalid account": "choose another launcher.account",
    r"Invalid qos": "choose another launcher.qos",
    r"generic resource \(gres\)": "choose another launcher.gres; `sinfo --format='%P %G'` lists all",
    r"Invalid feature": "choose another launcher.constraint; `sinfo --format='%P %f'` lists all",
    r"time limit is invalid|--time specification": "lower launcher.time; `sinfo` shows the limits",
    r"unrecognized option|invalid option|option .* is ambiguous|requires an argument": "correct launcher.options",
    r"[Ii]nvalid .*specification|[Ii]nvalid .*argument": "correct launcher.options",
    r"node configuration is not available|More processors requested|Node count specification": (
        "lower resources.slots_per_trial or launcher.slots_per_node; `sinfo --Node --long` lists all nodes"
    ),
    r"python3: not found|No module named": (
        f"install det-core {__version__} for the python3 that is first on the PATH of the nodes"
    ),
    r"not permitted|permission denied": "choose another launcher.partition or launcher.account",
}
"""Advice by messages about jobs that no later attempt will start."""


def is_preempted(job: Mapping[str, str]) -> bool:
    """Return whether Slurm preempts a job. Its state says so only when the grace time is over."""
    return job.get("PreemptTime", _NEVER) != _NEVER


def find_cause(job: Mapping[str, str], said: Sequence[str]) -> tuple[Cause | None, str]:
    """Return the cause of the end of a job or a step with Slurm's explanation, or None if Slurm did not end it.

    Args:
        job: fields of the job, empty if it is unknown.
        said: lines of ``srun``.
    """
    state, reason = job.get("JobState", ""), job.get("Reason", "")
    if is_preempted(job) or state in STATES:
        cause = Cause.PREEMPTED if is_preempted(job) else STATES[state]
        return cause, "" if reason in _NO_REASONS else reason
    for pattern, cause in _STEP_ENDS.items():
        if found := [line for line in said if re.search(pattern, line)]:
            return cause, found[0].rpartition("error: ")[2].strip("* ")
    return None, ""


def explain_refusal(said: Sequence[str]) -> str | None:
    """Return why a job cannot start, with advice, or None if a later attempt may succeed."""
    lines = [line.removeprefix("srun: ").removeprefix("error: ") for line in said if not line.startswith("Try ")]
    for pattern, advice in _REFUSALS.items():
        if found := [line for line in lines if re.search(pattern, line)]:
            return f"the job cannot start: {found[-1]}; {advice}"
    return None
