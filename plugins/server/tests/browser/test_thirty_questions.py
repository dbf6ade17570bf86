"""Thirty questions of a person who decides on the next experiment, answered by clicks that start at the list."""

from __future__ import annotations

import io
import math
import random
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from det_core.interfaces.records import CodeVersion, LogLine, Machine, MetricsReport, State, SystemMetrics
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

from ..seeded_store import report_curve
from ..serving import LIMIT, ServedSite, local_access, served
from ..test_media import PNG, image, record
from .conftest import Visit, Windows

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = [pytest.mark.integration, pytest.mark.soak]

MOST_CLICKS = 3
TRIALS = 16
_WRITTEN = "name: asha\nhyperparameters:\n  lr: {type: log, minval: -4, maxval: -1}\n"
_ERROR = "rank 3: RuntimeError: CUDA out of memory (batch 31, model_def.py:42)"
_COMMIT = "3d9ea3ed" * 5


class Question(NamedTuple):
    """A question and the way to its answer.

    Args:
        text: the question.
        clicks: kind of each click, its target and, for fields, what is typed or chosen. Typing and Enter are one click.
        answer: selectors mapped to texts that are visible at the end.
        pointed: selector of what the cursor points at in the end, which is no click.
        width: of the window.
        is_opened_again: whether the URL of the page is opened again in the end.
    """

    text: str
    clicks: Sequence[tuple[str, ...]]
    answer: Mapping[str, str]
    pointed: str = ""
    width: int = 1280
    is_opened_again: bool = False


_OPEN = ("link", "asha")
_SEARCH = ("link", f"{TRIALS + 1}")
_BEST = ("link", "{best}")
_COMPARE_BEST = ("link", "Compare the best 5")
_BOTH = (("check", "select experiment {search}"), ("check", "select experiment {rival}"))
_TIP = "#curves .tip"
_PLOT = "#curves .u-over"
_PLOT_OVER_EPOCHS = "#curves[data-range$=' 8'] .u-over"
QUESTIONS = (
    Question("What is the best value so far, and which trial has it?", [_OPEN], {"#facts": r"by trial {best}"}),
    Question("Did it diverge, and when?", [("link", "diverging")], {".legend": "NaN since batch 120"}),
    Question(
        "Does it overfit?",
        [_OPEN, _BEST],
        {"[id='validation.val_loss'][data-state=drawn]": "val_loss", "[id='training.loss'][data-state=drawn]": "loss"},
    ),
    Question(
        "Which trial learns fastest by time?",
        [_OPEN, ("choose", "over", "time")],
        {"#curves:not([data-range$=' 320'])[data-range] .legend": "trial {best}"},
    ),
    Question("What were the values of all curves at this step?", [_OPEN], {f"{_TIP} table": "and 4 more"}, _PLOT),
    Question("Which learning rates failed?", [_OPEN, ("type", "Filter", "state = failed")], {"#trials": r"0\.0987"}),
    Question("Which hyperparameter matters most?", [_SEARCH], {"#importance tbody": r"lr.*±.*width"}),
    Question(
        "Which values of two given hyperparameters work best together?",
        [_SEARCH, ("choose", "across", "dropout"), ("choose", "up", "width")],
        {".heat": "dropout", ".heat >> nth=0": "width"},
    ),
    Question("Has the search stopped improving?", [_SEARCH], {"#search": "least value so far", ".history": "10"}),
    Question(
        "How many trials completed, were stopped early, failed?",
        [_SEARCH],
        {"[data-marks=trials]": rf"completed 1\s*stopped early {TRIALS - 1}\s*failed 1"},
    ),
    Question(
        "Would another metric choose another trial?",
        [_SEARCH, ("choose", "Metric", "validation.accuracy")],
        {"#parallel-heading": "last accuracy", "#chosen thead": "accuracy"},
    ),
    Question("Did slots stand idle?", [_SEARCH], {"[data-say=places]": "At most", ".timeline": "waiting"}),
    Question(
        "Is the best value at the edge of the range?",
        [_OPEN, ("link", "Config and code")],
        {"pre >> nth=0": r"minval: -4, maxval: -1"},
    ),
    Question(
        "Which trials have lr < 0.01 and accuracy > 0.2?",
        [_OPEN, ("type", "Filter", "lr < 0.01 and accuracy > 0.2")],
        {"#trials .pages": r"of \d trials"},
    ),
    Question(
        "How does each project do as a group?",
        [("type", "Group by", "project")],
        {"#bulk .group": "project: models.*mean val_loss"},
    ),
    Question(
        "How do I come back to exactly this view?",
        [_OPEN, ("type", "Filter", "state = failed")],
        {"#trials .pages": "1 trial"},
        is_opened_again=True,
    ),
    Question("Why did this trial fail?", [_OPEN], {"#trials .note": "CUDA out of memory"}),
    Question(
        "What did rank 3 print before the end?",
        [_OPEN, ("link", "{failed}"), ("type", "Rank", "3")],
        {".log:not(:has(li:nth-child(2)))": "last words of rank 3"},
    ),
    Question("What did the whole search cost in slot-hours?", [_OPEN], {"#facts": r"cost\s*[<\d. ]+slot-hours"}),
    Question(
        "Was the GPU busy?",
        [_OPEN, _BEST],
        {"#utilization figure[data-state=drawn]": "utilization, %", "#utilization h3": "GPU"},
        pointed="#utilization .plot",
    ),
    Question(
        "What do the images look like at step 20?",
        [_OPEN, _BEST, ("choose", "step", "20")],
        {".medium:has(img[alt$='at step 20'])": "confusion matrix"},
    ),
    Question(
        "Which checkpoint is the best, and how do I load it?",
        [_OPEN, _BEST],
        {"#checkpoints": r'get_checkpoint\("uuid-{best}"\)\.load'},
    ),
    Question("What did the best trial's config differ in?", [_OPEN, _COMPARE_BEST], {".differs th >> nth=0": "lr"}),
    Question(
        "What changed in the code between two experiments?",
        [*_BOTH, ("button", "Compare code")],
        {".diff-lines": r"- rate = 2.*\+ rate = 1"},
    ),
    Question(
        "Which of two experiments is ahead over epochs?",
        [
            ("link", "Compare"),
            ("type", "Add the best of experiments", "{search},{rival}"),
            ("choose", "over", "epoch"),
        ],
        {_TIP: r"at 1 epochs", f"{_TIP} table": r"asha.*rival"},
        pointed=_PLOT_OVER_EPOCHS,
    ),
    Question(
        "Is A better than B beyond the noise of seeds?",
        [("type", "Group by", "name")],
        {".group:has-text('model A')": r"2 experiments; mean val_loss [\d.]+, standard deviation [\d.]+"},
    ),
    Question(
        "What do I send to somebody without an account?",
        [_OPEN, _COMPARE_BEST, ("download", "Download report")],
        {"h1": "Compar"},
    ),
    Question(
        "On a phone: what runs, what is its best, what failed?",
        [],
        {"tr:has-text('in progress')": r"running.*\d\.\d+", "tr:has-text('diverging')": "failed"},
        width=390,
    ),
    Question(
        "Which commit was it, and on which machine?",
        [_OPEN, _BEST],
        {"#origin": rf"{_COMMIT}.*gpu-node-1"},
    ),
    Question(
        "Which packages differ between two trials?",
        [*_BOTH, ("button", "Compare")],
        {"tbody:has-text('Packages that differ')": r"torch.*2\.1.*2\.9|torch.*2\.9.*2\.1"},
    ),
)


def _make_experiment(store: TrackingStore, name: str, *, code: str = "rate = 1\n", **more: Any) -> int:
    searcher = {"name": "async_halving", "metric": "val_loss", "smaller_is_better": True, "max_length": 320}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo("model_def.py")
        member.size = len(code)
        archive.addfile(member, io.BytesIO(code.encode()))
    experiment = store.create_experiment(
        config={"name": name, "searcher": searcher, "hyperparameters": {}, **more},
        original_config=_WRITTEN,
        owner="ada",
        model_definition=buffer.getvalue(),
        code_version=CodeVersion(commit=_COMMIT, branch="main"),
    ).id
    store.set_experiment_state(experiment, State.ACTIVE)
    return experiment


def _train(store: TrackingStore, experiment: int, length: int, lr: float, *, torch: str = "2.1") -> int:
    """Record a trial that has trained ``length`` batches, and return its id."""
    hparams = {"lr": lr, "width": random.choice([32, 64]), "dropout": random.uniform(0, 0.5)}
    trial = store.create_trial(experiment, hparams=hparams, seed=1)
    run = store.start_run(trial.id, allocation_id=f"of {trial.id}").run_id
    which: dict[str, Any] = {"trial_id": trial.id, "run_id": run}
    store.set_searcher_operation(trial.id, length)
    store.record_machine(**which, machine=Machine(host=f"gpu-node-{trial.id}", packages={"torch": torch}))
    report_curve(store, trial, run, range(10, length + 1, 10), lr)
    epochs = [
        MetricsReport(**which, group="validation", steps_completed=step, metrics={"epoch": step / 40})
        for step in range(40, length + 1, 40)
    ]
    store.report_metrics(epochs)
    store.begin_checkpoint(f"uuid-{trial.id}", trial_id=trial.id, run_id=run, storage={})
    store.complete_checkpoint(f"uuid-{trial.id}", run_id=run, steps_completed=length, resources={}, metadata={})
    store.complete_searcher_operation(trial.id, run, length, epochs[-1].steps_completed / 1e4)
    store.set_trial_state(trial.id, State.COMPLETED)
    return trial.id


def _fail(store: TrackingStore, experiment: int, lr: float) -> int:
    """Record a trial of four ranks that has failed, and return its id."""
    trial = store.create_trial(experiment, hparams={"lr": lr, "width": 32, "dropout": 0.1}, seed=1)
    run = store.start_run(trial.id, allocation_id="failed").run_id
    which: dict[str, Any] = {"trial_id": trial.id, "run_id": run, "time": datetime.now(timezone.utc)}
    store.add_logs([LogLine(**which, rank=n, stdtype="stderr", log=f"last words of rank {n}") for n in range(4)])
    store.end_run(trial.id, run, reason=_ERROR, exit_code=1, slots=4)
    store.set_trial_state(trial.id, State.ERROR)
    return trial.id


def _add_others(store: TrackingStore) -> None:
    """Record two models with two seeds each, an experiment that has diverged, and one that goes on."""
    for name in ("model A", "model A", "model B", "model B"):
        _train(store, _make_experiment(store, name, project="models"), 80, 0.01)
    diverging = _make_experiment(store, "diverging")
    trial = store.trial(_train(store, diverging, 80, 0.01))
    which: dict[str, Any] = {"trial_id": trial.id, "run_id": trial.run_id, "group": "validation"}
    store.report_metrics([MetricsReport(**which, steps_completed=120, metrics={"val_loss": math.nan})])
    store.set_experiment_state(diverging, State.ERROR, error="the loss is not finite")
    store.set_experiment_state(_make_experiment(store, "queued"), State.CANCELED)
    going_on = _make_experiment(store, "in progress")
    store.acquire_lease(going_on, "node-1:1:1:x", seconds=36000, state=State.ACTIVE)
    _train(store, going_on, 80, 0.01)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedSite, dict[str, int]]]:
    """Serve a store that has the answers, and yield the ids that questions name."""
    directory = tmp_path_factory.mktemp("answers")
    random.seed(1)
    with open_store(f"sqlite:///{directory}/det.db") as store:
        storage = {"type": "shared_fs", "host_path": str(directory)}
        search = _make_experiment(store, "asha", checkpoint_storage=storage)
        best = _train(store, search, 320, 0.005)
        for _ in range(TRIALS - 1):
            _train(store, search, 80, 10 ** random.uniform(-4, -1))
        failed = _fail(store, search, 0.0987)
        store.set_experiment_state(search, State.COMPLETED)
        rival = _make_experiment(store, "rival", code="rate = 2\n")
        _train(store, rival, 320, 0.02, torch="2.9")
        _add_others(store)
        _add_images_and_use(store, directory, search, best)
        with served(store, local_access) as site:
            yield site, {"search": search, "best": best, "failed": failed, "rival": rival}


def _add_images_and_use(store: TrackingStore, directory: Path, experiment: int, trial: int) -> None:
    folder = directory / store.cluster_id / f"tensorboard/experiment/{experiment}/trial/{trial}"
    folder.mkdir(parents=True)
    images = (record(step, image(b"confusion matrix", PNG)) for step in (10, 20, 30))
    (folder / "events.out.tfevents.1").write_bytes(b"".join(images))
    now = datetime.now(timezone.utc)
    use = {"node-1": {"GPU-1": {"gpu_util": 97.0}}}
    store.report_system_metrics([SystemMetrics(trial_id=trial, run_id=1, group="gpu", metrics=use, time=now)] * 2)


def _click(visit: Visit, kind: str, target: str, value: str = "") -> None:
    """Carry one click out, or type into a field and press Enter."""
    page = visit.page
    if kind == "choose":
        page.get_by_label(re.compile(rf"^{target}\b")).first.select_option(value)  # the options are in the text, too
    elif kind == "type":
        page.get_by_label(target, exact=True).first.fill(value)
        page.keyboard.press("Enter")
    elif kind == "check":
        page.get_by_label(target, exact=True).check()
    elif kind == "download":
        with page.expect_download() as download:
            page.get_by_role("button", name=target).click()
        assert "<svg" in download.value.path().read_text()
    else:
        page.get_by_role("link" if kind == "link" else "button", name=target, exact=True).first.click()
    page.wait_for_load_state()
    visit.wait_until_drawn()


def _point(page: Page, place: Locator) -> None:
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 200, box["y"] + 1)


@pytest.mark.parametrize("question", QUESTIONS, ids=[one.text for one in QUESTIONS])
def test_a_question_is_answered_within_three_clicks(
    browser: Browser, answers: tuple[ServedSite, dict[str, int]], question: Question
) -> None:
    site, ids = answers
    assert len(question.clicks) <= MOST_CLICKS
    with Windows(browser, site).visit(question.width) as visit:
        page = visit.open("/experiments")
        for kind, *words in question.clicks:
            _click(visit, kind, *(_fill_in(word, ids) for word in words))
        if question.is_opened_again:
            page.wait_for_url("**where=**")
            page.goto(page.url)
        if question.pointed:
            _point(page, page.locator(question.pointed))
        for selector, text in question.answer.items():
            page.locator(selector, has_text=re.compile(_fill_in(text, ids), re.DOTALL)).first.wait_for(
                timeout=LIMIT * 1000
            )


def _fill_in(text: str, ids: Mapping[str, int]) -> str:
    for name, identity in ids.items():
        text = text.replace(f"{{{name}}}", str(identity))
    return text
