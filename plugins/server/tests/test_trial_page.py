"""Page of a trial: what ended its last run and what follows, its runs and what they cost, and its logs."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest

from det_core.interfaces.records import MetricsReport, State
from det_core.interfaces.tracking import TrackingStore

from .serving import ServedSite

CONFIG = {"name": "x", "max_restarts": 2, "resources": {"slots_per_trial": 4}}
FAILED = {"reason": "rank 3: ValueError: no <loss> (batch 31, model_def.py:42)", "exit_code": 1}
LOST = {"reason": "node lost: n2", "exit_code": 1, "cause": "node lost"}
KILLED = {"reason": "the worker was terminated by signal 9", "exit_code": -9}


def text_of(html: str) -> str:
    """Return the text of a part of a page, in one line."""
    return " ".join(unescape(re.sub("<[^>]*>", " ", html)).split())


def failure_on(site: ServedSite, trial: int) -> str:
    """Return the text of the failure on the page of a trial, or ""."""
    page = site.owner.get(f"/trials/{trial}").text
    return text_of("".join(re.findall('<section class="message failure".*?</section>', page, re.DOTALL)))


def train(store: TrackingStore, trial: int, steps: int, **end: Any) -> None:
    """Record a run that trained, saved a checkpoint 5 batches before its end, and ended."""
    run = store.start_run(trial, allocation_id="a").run_id
    store.report_metrics(
        [MetricsReport(trial_id=trial, run_id=run, group="training", steps_completed=steps, metrics={"loss": 1.0})]
    )
    store.begin_checkpoint(f"c{trial}-{run}", trial_id=trial, run_id=run, storage={})
    store.complete_checkpoint(f"c{trial}-{run}", run_id=run, steps_completed=steps - 5, resources={}, metadata={})
    store.set_trial_placement(trial, run, "running on n1, n2 (Slurm job 4711)")
    store.end_run(trial, run, **end)


@pytest.fixture
def trial(local: ServedSite) -> int:
    experiment = local.store.create_experiment(config=CONFIG).id
    local.store.acquire_lease(experiment, "here:1:1:x", seconds=600, state=State.ACTIVE)
    return local.store.create_trial(experiment, hparams={}, seed=1).id


@pytest.mark.parametrize(
    ("end", "restarts", "state", "title", "rest"),
    [
        (FAILED, 3, State.ERROR, "Run 1 failed", "given up, because it may restart 2 times (max_restarts)."),
        (FAILED, 1, State.ERROR, "Run 1 failed", "a restart would fail in the same way. 1 of 2 restarts used."),
        (FAILED, 1, State.ACTIVE, "Run 1 failed", "starts again soon, 1 of 2 restarts used."),
        (LOST, 1, State.ERROR, "Run 1 failed", "given up, after 0 interruptions, 1 of 2 restarts used."),
        (
            LOST,
            0,
            State.PAUSED,
            "Run 1 was interrupted",
            "continues from its latest checkpoint with det experiment resume 1",
        ),
    ],
)
def test_the_page_says_what_ended_the_last_run_and_what_follows(
    local: ServedSite, trial: int, end: dict[str, Any], restarts: int, state: State, title: str, rest: str
) -> None:
    train(local.store, trial, 50, **end)
    for _ in range(restarts):
        local.store.count_restart(trial)
    local.store.set_trial_state(trial, state)
    shown = failure_on(local, trial)
    assert shown.startswith(title)
    assert shown.endswith(rest)
    assert "nodes n1, n2 (Slurm job 4711)" in shown
    if end is FAILED:
        assert "ValueError: no <loss> exit code 1" in shown
        assert "rank 3 batch 31 line model_def.py:42" in shown
    else:
        assert "cause node lost" in shown


def test_a_failure_is_shown_while_the_trial_trains_again(local: ServedSite, trial: int) -> None:
    store = local.store
    train(store, trial, 50, **KILLED)
    store.count_restart(trial)
    store.start_run(trial, allocation_id="b")
    store.set_trial_state(trial, State.ACTIVE)
    shown = failure_on(local, trial)
    assert "exit code signal 9 (SIGKILL)" in shown
    assert shown.endswith("The trial continues in run 2, 1 of 2 restarts used.")
    store.release_lease(1, "here:1:1:x")
    assert failure_on(local, trial).endswith("It continues with det experiment resume 1")


@pytest.mark.parametrize(
    "end",
    [
        lambda store, trial: store.start_run(trial, allocation_id="a"),
        lambda store, trial: train(store, trial, 50, exit_code=0),
        lambda store, trial: (train(store, trial, 50, **FAILED), store.set_trial_state(trial, State.COMPLETED)),
        lambda store, trial: (train(store, trial, 50, **KILLED), store.set_trial_state(trial, State.CANCELED)),
    ],
)
def test_a_healthy_trial_has_no_failure(local: ServedSite, trial: int, end: Callable[..., None]) -> None:
    end(local.store, trial)
    assert failure_on(local, trial) == ""


def test_the_runs_have_their_costs_and_a_total(local: ServedSite, trial: int) -> None:
    store = local.store
    train(store, trial, 50, **FAILED, slots=2)
    train(store, trial, 80, **LOST)
    store.start_run(trial, allocation_id="b")
    page = local.owner.get(f"/trials/{trial}").text
    rows = [text_of(row) for row in re.findall("<tr>.*?</tr>", page.partition('id="runs"')[2], re.DOTALL)]
    cells = [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "T", row) for row in rows]
    cells = [re.sub(r" 0\.0+\d* | \d\.\d+e\S+ ", " H ", row).replace("–", "-") for row in cells]  # noqa: RUF001
    assert cells[1:] == [
        "3 T - < 1 min 4 H 0 has not ended -",
        "2 T T 0 s 4 H 30 node lost: n2 n1, n2 (Slurm job 4711)",
        f"1 T T 0 s 2 H 45 {FAILED['reason']} n1, n2 (Slurm job 4711)",
        "total of 3 runs 0 s H 75",
    ]
