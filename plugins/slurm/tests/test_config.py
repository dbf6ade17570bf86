"""Options of the launcher, and what ``srun`` gets of them."""

from __future__ import annotations

from typing import Any

import pytest
from det_slurm._config import SlurmConfig
from det_slurm._end_causes import explain_refusal, find_cause
from pydantic import ValidationError

from det_core.interfaces.launcher import Cause


@pytest.mark.parametrize(
    ("options", "slots", "expected", "device"),
    [
        ({}, 2, ["--cpus-per-task=2"], "cpu"),
        ({"gres": "gpu", "time": "60"}, 2, ["--time=60", "--gres=gpu:2", "--cpus-per-task=2"], "cuda"),
        ({"gres": "gpu:a100:1"}, 4, ["--gres=gpu:a100:4", "--cpus-per-task=4"], "cuda"),
        ({"gres": "fpga:2"}, 2, ["--gres=fpga:4", "--cpus-per-task=2"], "cpu"),
        ({"options": ["--cpus-per-task=8", "--mem=1G"]}, 2, ["--cpus-per-task=8", "--mem=1G"], "cpu"),
        ({"options": ["--gpus-per-node=4"]}, 1, ["--cpus-per-task=1", "--gpus-per-node=4"], "cuda"),
        *(
            ({"options": [option]}, 1, ["--cpus-per-task=1", option], "cpu")
            for option in ("--signal=USR1@300", "--signal=R:SIGTERM@9", "-xn1", "-wonu", "--nodelist=n1", "--exclusive")
        ),
    ],
)
def test_options_of_a_run(options: dict[str, Any], slots: int, expected: list[str], device: str) -> None:
    config = SlurmConfig(**options)
    assert (config.run_options(slots), config.device()) == (expected, device)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"time": 14400}, "expected text in quotes, such as '4:00:00'"),
        ({"time": "4h"}, "expected a time such as '240'"),
        ({"gres": "gpu:4"}, "a slot is one GPU; write 'gpu', and set slots_per_node"),
        ({"options": ["-N2"]}, "det chooses --nodes itself; set slots_per_node"),
        ({"options": ["--job-name=x"]}, "det chooses --job-name itself"),
        ({"options": ["--unbuffered"]}, "--unbuffered breaks the pipes of srun, through which det reaches the nodes"),
        ({"options": ["-vu"]}, "--unbuffered breaks"),
        ({"options": ["--unb"]}, "--unbuffered breaks"),
        ({"options": ["--multi-prog"]}, "--multi-prog breaks"),
        ({"options": ["-ovW"]}, "--output breaks"),
        ({"options": ["--wait=30"]}, "--wait ends workers"),
        ({"options": ["-K"]}, "--kill-on-bad-exit ends workers"),
        ({"options": ["--export=NONE"]}, "--export .*; set environment.environment_variables"),
        (
            {"options": ["--signal=KILL@60"]},
            "expected --signal with .* USR1 or USR2, .* got '--signal=KILL@60'",
        ),
        ({"options": ["n7"]}, "expected an option in one word"),
        ({"options": ["--"]}, "expected an option in one word"),
    ],
)
def test_wrong_options(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        SlurmConfig(**options)


@pytest.mark.parametrize(
    ("job", "said", "cause", "explanation"),
    [
        ({"JobState": "TIMEOUT", "Reason": "TimeLimit"}, [], Cause.TIME_LIMIT, "TimeLimit"),
        ({"JobState": "RUNNING", "PreemptTime": "2026-01-01T00:00:00"}, [], Cause.PREEMPTED, ""),
        ({"JobState": "RUNNING", "PreemptTime": "None", "Reason": "None"}, [], None, ""),
        (
            {"JobState": "RUNNING"},
            ["slurmstepd: error: *** STEP 4.1 ON n1 CANCELLED AT 2026 DUE TO TIME LIMIT ***"],
            Cause.TIME_LIMIT,
            "STEP 4.1 ON n1 CANCELLED AT 2026 DUE TO TIME LIMIT",
        ),
        (
            {"JobState": "RUNNING"},
            ["*** STEP 4.1 ON n1 CANCELLED AT 2026 ***"],
            Cause.CANCELED,
            "STEP 4.1 ON n1 CANCELLED AT 2026",
        ),
        ({}, [], None, ""),
    ],
)
def test_causes(job: dict[str, str], said: list[str], cause: Cause | None, explanation: str) -> None:
    assert find_cause(job, said) == (cause, explanation)


def test_a_request_that_may_be_accepted_later_is_no_refusal() -> None:
    assert explain_refusal(["srun: error: Slurm controller not responding, sleeping and retrying."]) is None
