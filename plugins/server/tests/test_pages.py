"""Pages over a store with everything that they must be able to show, and over an empty one."""

from __future__ import annotations

import csv
import gzip
import html
import io
import json
import math
import re
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote

import pytest
from det_server import _threads, pages
from det_server._ansi_text import _changed_style, colored_segments
from det_server._rendering import clean_text, format_metric, format_number
from det_server.pages import _axes, code, utilization
from det_server.pages._group_scores import describe_values
from det_server.pages._series import MAX_CHARACTERS, MAX_METRICS, sorted_groups
from det_server.pages.experiment import _rungs

from det_core.interfaces.records import LONGEST_BRIEF, LogLine, MetricsReport, State, SystemMetrics
from det_core.interfaces.secrets import MASK, REFERENCE_PREFIX
from det_core.interfaces.server_store import RungCount
from det_core.launch import context_archive
from det_core.text import format_size
from det_core.tracking import _column_types, open_store

from .seeded_pages import page_paths
from .seeded_store import HOSTILE, Seeded, seed_store
from .serving import Client, ServedSite, call_with_peak_memory, local_access, site_without_server


@pytest.fixture(scope="module")
def seeded(
    request: pytest.FixtureRequest, backend: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Seeded, Client]]:
    """Return a seeded store to all tests of the module, which only read."""
    if backend == "postgresql":
        url = request.getfixturevalue("postgresql").create_database()
    else:
        url = f"sqlite:///{tmp_path_factory.mktemp('seeded')}/det.db"
    with open_store(url) as store:
        ids = seed_store(store, trials=8, batches=640)
        yield ids, site_without_server(store, local_access).owner


class Page(HTMLParser):
    """Elements and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.mark.integration
def test_every_page_shows_its_content_and_nothing_of_it_becomes_markup(seeded: tuple[Seeded, Client]) -> None:
    ids, client = seeded
    for path, phrase in page_paths(ids).items():
        answer = client.get(path)
        assert answer.status == (404 if "999999" in path else 200), f"{path}: {answer.text}"
        page = Page(answer.text)
        assert phrase in page.text, path
        assert not page.all("img"), path
        assert "{{7*7}}" in page.text or "&49" not in page.text, path  # no template in a name is rendered
        for tag, attributes in page.elements:
            assert not [name for name in attributes if name.startswith("on") or name == "style"], f"{path}: {tag}"
            assert tag != "style", path
            assert tag != "script" or attributes.get("src"), path


@pytest.mark.integration
def test_every_page_has_one_heading_and_names_the_command_line(seeded: tuple[Seeded, Client]) -> None:
    ids, client = seeded
    for path in page_paths(ids):
        page = Page(client.get(path).text)
        assert len(page.all("h1")) == 1, path
        if not path.startswith(("/experiments/999999", "/audit", "/compare")):
            assert "On the command line:" in page.text, path


def test_every_route_of_a_page_is_in_the_table_of_these_tests(seeded: tuple[Seeded, Client]) -> None:
    ids, _ = seeded
    shown = [path.partition("?")[0] for path in page_paths(ids)]
    others = {"/", "/live", "/account"}
    for route in pages.ROUTES:
        pattern = re.sub(r"\\?{[^}]*}", "[^/]+", route.path)  # type: ignore[attr-defined]
        if not (route.path.startswith("/data/") or "." in route.path or route.path in others):  # type: ignore[attr-defined]
            assert any(re.fullmatch(pattern, path) for path in shown), route


def test_all_data_of_pages_is_answered(seeded: tuple[Seeded, Client]) -> None:
    ids, client = seeded
    curves = client.get(
        f"/data/curves?trials={ids.best_trial},{ids.running_trial}&group=validation&metric=val_loss"
    ).json
    assert [one["id"] for one in curves["series"]] == [ids.best_trial, ids.running_trial]
    assert all(one["x"] and len(one["x"]) == len(one["y"]) for one in curves["series"])
    logs = client.get(f"/data/logs/{ids.hostile_trial}?limit=2").json
    assert logs["more"]
    assert logs["lines"][0]["text"] == [["b fg2", "green"], ["", f" and {HOSTILE}"]]
    rest = client.get(f"/data/logs/{ids.hostile_trial}?after={logs['lines'][-1]['id']}").json
    assert rest["lines"][0]["text"] == [["", "100 %"]]
    search = client.get(f"/data/experiments/{ids.search}/trials").json
    assert search["metric"] == "val_loss"
    assert dict(zip(search["names"], search["scales"], strict=True))["lr"] == "log"
    bests = [one["value"] for one in search["trials"]]
    assert len(bests) == 8 and bests == sorted(bests)
    first = Page(client.get(f"/trials/{bests.index(bests[0]) + 1}").text)
    assert first.all("figure")


@pytest.mark.integration
def test_long_lines_of_logs_arrive_in_parts(local: ServedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line has up to 128 KiB, and a response of 2000 would keep all others waiting while it is encoded."""
    store, encoded, dumps = local.store, list[int](), json.dumps
    trial = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=1).id
    line = LogLine(
        trial_id=trial, run_id=1, rank=0, stdtype="stdout", log="\x1b[31mé" * 4000, time=datetime.now(timezone.utc)
    )
    store.add_logs([line] * 60)
    ids = [one.id for one in store.logs(trial)]

    def note(*args: Any, **options: Any) -> str:
        text = dumps(*args, **options)
        encoded.append(len(text))
        return text

    monkeypatch.setattr(json, "dumps", note)
    for name, edge in (("after", -1), ("before", 0)):
        shown, more = list[int](), True
        while more:
            answer = local.owner.get(f"/data/logs/{trial}?{name}={shown[edge] if shown else 0}")
            assert len(answer.body) < 1 << 20
            found, more = [one["id"] for one in answer.json["lines"]], answer.json["more"]
            shown = shown + found if name == "after" else found + shown
        assert shown == ids
    assert max(encoded) < 100_000
    assert len(local.owner.get(f"/trials/{trial}").body) < 2 << 20


@pytest.mark.integration
def test_pages_of_models_do_not_read_what_they_do_not_show(local: ServedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token of a run creates any number of models and versions with 1 MiB of each text, and larger checkpoints."""
    monkeypatch.setattr(_threads, "MAX_READ_CHARACTERS", 5 << 20)
    store, long = local.store, "x" * (1 << 20)
    trial = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=1).id
    store.start_run(trial, allocation_id="a")
    store.begin_checkpoint("c", trial_id=trial, run_id=1, storage={})
    store.complete_checkpoint("c", run_id=1, steps_completed=1, resources={}, metadata={"a": long})
    for number in range(10):
        store.create_model(f"m{number}", description=long, notes=long, metadata={"a": long[100:]})
        store.add_model_version("m0", "c", comment=long, notes=long, metadata={"a": long[100:]})
    owner = local.owner
    for path in ("/models", "/models.csv", "/models/1", "/checkpoints/c/register"):
        answer, peak = call_with_peak_memory(owner.get, path)
        assert answer.status == 200, path
        assert peak < 10 << 20, path


@pytest.mark.integration
def test_large_records_of_a_trial_leave_its_pages_small(local: ServedSite) -> None:
    """The token of a run writes any number of checkpoints and samples, each as large as a record can be."""
    store, time = local.store, datetime.now(timezone.utc)
    hyperparameters = {f"h{number}": number for number in range(3000)}
    trial = store.create_trial(store.create_experiment(config={}).id, hparams=hyperparameters, seed=1).id
    store.start_run(trial, allocation_id="a")
    for number in range(20):
        store.begin_checkpoint(f"c{number}", trial_id=trial, run_id=1, storage={})
        resources = {"x" * (1 << 20): 2**20}
        store.complete_checkpoint(f"c{number}", run_id=1, steps_completed=number, resources=resources, metadata={})
    hosts = {f"host{number}": {"cpu_util_simple": 1.0} for number in range(1000)}
    sample = SystemMetrics(trial_id=trial, run_id=1, group="cpu", metrics=hosts, time=time)
    one = replace(sample, metrics={"host0": {"cpu_util_simple": 1.0}})
    store.report_system_metrics([sample, *[one] * 2000])
    owner = local.owner
    page, peak = call_with_peak_memory(owner.get, f"/trials/{trial}")
    assert page.text.count(f">{format_size(2**20)}<") == 20
    assert peak < 16 << 20
    series = owner.get(f"/data/trials/{trial}/usage?group=cpu&name=cpu_util_simple&after=1").json["series"]
    assert [len(series), len(series[0]["x"]) < 700] == [1, True]
    series = owner.get(f"/data/trials/{trial}/usage?group=cpu&name=cpu_util_simple").json["series"]
    assert len(series) == 100
    assert len(owner.get(f"/compare?trials={trial}").body) < 1 << 20


@pytest.mark.integration
def test_long_texts_of_runs_and_samples_leave_the_page_of_a_trial_small(local: ServedSite) -> None:
    store, long = local.store, "&" * (1 << 20)
    trial = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=1).id
    for number in range(1, 21):
        store.start_run(trial, allocation_id=long)
        store.end_run(trial, number, reason=f"reason {number} {long}")
    store.set_trial_state(trial, State.ERROR)
    usage = {"host": {f"value{number}" + "&" * number: 1.0 for number in range(300)}}
    time = datetime.now(timezone.utc)
    store.report_system_metrics([SystemMetrics(trial_id=trial, run_id=20, group="cpu", metrics=usage, time=time)])
    owner = local.owner
    for path in (f"/trials/{trial}", "/experiments/1"):
        page, peak = call_with_peak_memory(owner.get, path)
        assert "reason 20 &amp;" in page.text
        assert len(page.body) < 1 << 20
        assert peak < 8 << 20
        assert page.text.count("/usage?") <= 100


def test_utilization_has_a_chart_per_value(seeded: tuple[Seeded, Client]) -> None:
    ids, client = seeded
    trials = client.get(f"/data/experiments/{ids.search}/trials").json["trials"]
    page = Page(client.get(f"/trials/{min(one['id'] for one in trials)}").text)
    sources = [figure["data-src"] or "" for figure in page.all("figure") if "usage" in (figure["data-src"] or "")]
    assert len(sources) == 6
    gpu = next(source for source in sources if "gpu_free_memory" in source)
    (series,) = client.get(gpu).json["series"]
    assert series["label"].startswith("node-1.")
    assert series["y"][0] == pytest.approx(3.2)  # GB


def test_utilization_keeps_extremes_and_continues(local: ServedSite) -> None:
    store, client = local.store, local.owner
    trial = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=1).id
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)

    def sample(second: int, value: float) -> SystemMetrics:
        which = {"trial_id": trial, "run_id": 1, "group": "cpu", "time": start + timedelta(seconds=second)}
        return SystemMetrics(**which, metrics={"node-1": {"cpu_util_simple": value}})

    values = [float(n % 50) for n in range(5000)]
    values[1234], values[4321], values[77], values[78] = 100.0, -1.0, math.nan, 10**400
    store.start_run(trial, allocation_id="a")
    store.report_system_metrics([sample(second, value) for second, value in enumerate(values)])
    path = f"/data/trials/{trial}/usage?group=cpu&name=cpu_util_simple"
    answer = client.get(path).json
    (series,) = answer["series"]
    assert len(series["x"]) == len(series["y"]) <= 602
    assert series["x"] == sorted(series["x"])
    assert (series["x"][0], series["x"][-1]) == (start.timestamp(), start.timestamp() + 4999)
    assert (min(series["y"]), max(series["y"])) == (-1.0, 100.0)
    store.report_system_metrics([sample(5000 + second, 3.0) for second in range(3)])
    newer = client.get(f"{path}&after={answer['last']}").json
    assert newer["series"][0]["y"] == [3.0] * 3
    assert client.get(f"{path}&after={newer['last']}").json == {"series": [], "last": newer["last"], "more": False}
    assert client.get(f"/trials/{trial}").status == 200


def test_samples_of_thousands_of_values_are_read_in_parts(local: ServedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token of a run reports any number of them, and with few values in each any number of samples."""
    looked_at = []

    def note(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda value: looked_at.append(value) or function(value)

    for name, function in {"clean_text": clean_text, "_is_finite": utilization._is_finite}.items():
        monkeypatch.setattr(utilization, name, note(function))
    store, start = local.store, datetime(2026, 1, 1, tzinfo=timezone.utc)
    trial = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=1).id
    store.start_run(trial, allocation_id="a")
    many: dict[str, Any] = {f"value{number}": 1 for number in range(3000)}
    values = many | {"a.b": 2.0, "gpu\u202e": {"gpu_util": 3.0}}
    samples = [
        SystemMetrics(
            trial_id=trial, run_id=1, group="gpu", metrics={"node.1": values, "node-2": 4}, time=start + timedelta(n)
        )
        for n in range(24)
    ]
    store.report_system_metrics(samples)
    charts = utilization.utilization_charts(store, trial)["GPU"]
    assert [len(charts), len(looked_at) < 20_000] == [100, True]
    looked_at.clear()
    monkeypatch.setattr(utilization, "_MOST_SECONDS", -1)
    monkeypatch.setattr(utilization, "_SAMPLES_AT_ONCE", 10)
    for name, label, value in (("gpu_util", "node.1.gpu", 3.0), ("a.b", "node.1", 2.0), ("value", "node-2", 4.0)):
        answer: dict[str, Any] = {"last": 0, "more": True}
        times = []
        while answer["more"]:
            answer = local.owner.get(f"/data/trials/{trial}/usage?group=gpu&name={name}&after={answer['last']}").json
            for one in answer["series"]:
                assert (one["label"], set(one["y"])) == (label, {value})
                times += one["x"]
        assert times[-14:] == [sample.time.timestamp() for sample in samples[10:]]
        assert times[0] == start.timestamp() and times == sorted(times)
    assert len(looked_at) < 24 * 3 * 4


def test_the_metrics_of_trials_are_listed(seeded: tuple[Seeded, Client]) -> None:
    ids, client = seeded
    names = client.get(f"/data/metric-names?trials={ids.best_trial}").json["names"]
    assert names[0] == "validation.accuracy" and "training.loss" in names
    assert client.get("/data/metric-names?trials=").json == {"names": []}


def test_a_metric_may_have_a_long_name(seeded: tuple[Seeded, Client]) -> None:
    ids, client = seeded
    metric = quote("名" * 4000)
    assert (
        client.get(f"/data/curves?trials={ids.best_trial}&group=validation&metric={metric}").json["series"][0]["x"]
        == []
    )


def test_a_part_of_a_curve_can_be_asked_for(seeded: tuple[Seeded, Client]) -> None:
    ids, client = seeded
    path = f"/data/curves?trials={ids.best_trial}&group=validation&metric=val_loss"
    (whole,) = client.get(path).json["series"]
    middle = whole["x"][len(whole["x"]) // 2]
    (later,) = client.get(f"{path}&after={middle}").json["series"]
    assert later["x"] == [step for step in whole["x"] if step > middle]
    (until,) = client.get(f"{path}&until={middle}").json["series"]
    assert until["x"] + later["x"] == whole["x"]


def test_steps_have_positions_on_other_axes(local: ServedSite) -> None:
    store, client = local.store, local.owner
    config = {"searcher": {"metric": "loss", "max_length": {"epochs": 4}}}
    trials = [store.create_trial(store.create_experiment(config=config).id, hparams={}, seed=0).id for _ in range(3)]
    start = datetime.now(timezone.utc) + timedelta(hours=1)
    for trial in trials:
        store.start_run(trial, allocation_id="a")
        which: dict[str, Any] = {"trial_id": trial, "run_id": 1, "group": "training"}
        for step in (10, 20, 30):
            epoch = {"epochs": step / 2} if trial == trials[1] else {}
            when = start + timedelta(seconds=-5 if step == 30 else step)  # a clock that goes back
            store.report_metrics(
                [MetricsReport(**which, steps_completed=step, time=when, metrics={"loss": float(step), **epoch})]
            )
    store.set_searcher_operation(trials[0], 4)
    store.set_trial_total(trials[0], 1, 40)
    path = f"/data/curves?trials={','.join(map(str, trials))}&group=training&metric=loss"

    def positions(axis: str) -> list[Any]:
        return [one["positions"] for one in client.get(f"{path}&axis={axis}").json["series"]]

    assert positions("epoch") == [[[0, 0.0], [10, 1.0]], [[10, 5.0], [20, 10.0], [30, 15.0]], []]
    clock = [[step, start.timestamp() + seconds] for step, seconds in ((10, 10), (20, 20), (30, 20))]
    assert positions("clock")[0] == [[step, pytest.approx(seconds, abs=0.01)] for step, seconds in clock]
    begun = store.run(trials[2], 1).start_time
    assert begun
    elapsed = (start - begun).total_seconds() + 10
    assert positions("time")[2][0] == [10, pytest.approx(elapsed, abs=0.01)]
    spans = [(100.0, 110.0), (200.0, 205.0), (300.0, math.inf)]
    pairs = [(1, 90.0), (2, 104.0), (3, 150.0), (4, 202.0), (5, 310.0)]
    assert _axes._without_pauses(pairs, spans) == [(1, 0.0), (2, 4.0), (3, 10.0), (4, 12.0), (5, 25.0)]
    assert "positions" not in client.get(f"{path}&axis=x").json["series"][0]


@pytest.mark.parametrize(
    "path",
    [
        "/data/curves?trials=1",
        "/data/curves?trials=1;2&group=validation&metric=x",
        "/data/curves?trials=../../etc&group=validation&metric=x",
        "/data/curves?trials=1&group=validation&metric=x&points=100000",
        "/live?trials=x",
    ],
)
def test_malformed_queries_are_refused_with_the_expected_form(seeded: tuple[Seeded, Client], path: str) -> None:
    answer = seeded[1].get(path)
    assert answer.status == 400
    assert "expected" in answer.json["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/trials/999999999999999999999999",
        "/experiments/99999999999999999999/code",
        "/models/77",
        "/checkpoints/..%2f..%2fetc/confirm/delete",
        "/checkpoints/%2e%2e/register",
        "/experiments/1/confirm/explode",
        "/experiments/-1",
    ],
)
def test_unknown_ids_are_not_found(seeded: tuple[Seeded, Client], path: str) -> None:
    assert seeded[1].get(path).status == 404


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/account", "det server --users"),
        ("/experiments/1/confirm/explode", "expected pause, resume, cancel"),
        ("/data/curves?trials=1&group=validation&metric=x&points=0", "expected points from 1 to"),
    ],
)
def test_a_refusal_says_why(seeded: tuple[Seeded, Client], path: str, reason: str) -> None:
    answer = seeded[1].get(path)
    assert answer.status in (400, 404)
    assert reason in answer.text


@pytest.mark.parametrize(
    "query",
    ["page=x", "page=-3", f"page={'9' * 5000}", "order=%27;--", "state=NONE", "archived=?"],
)
def test_values_of_the_url_that_make_no_sense_are_ignored(seeded: tuple[Seeded, Client], query: str) -> None:
    for path in ("/experiments", f"/experiments/{seeded[0].search}"):
        assert seeded[1].get(f"{path}?{query}").status == 200


def test_lists_are_filtered_and_links_keep_the_filters(seeded: tuple[Seeded, Client]) -> None:
    ids, client = seeded
    page = Page(client.get("/experiments?label=vision&state=ERROR&order=name").text)
    links = [one["href"] for one in page.all("a") if (one.get("href") or "").startswith("/experiments/")]
    assert links == [f"/experiments/{ids.failed}", f"/experiments/{ids.failed}/search"]
    sorting = [one["href"] for one in page.all("a") if "order=progress" in (one.get("href") or "")]
    assert sorting == ["?state=ERROR&label=vision&order=progress"]
    assert "det experiment list --state ERROR --label vision" in page.text
    odd = html.unescape(client.get("/experiments?name=a%1b[&label=;+echo+%23").text)
    assert "det experiment list --name 'a[' --label '; echo #'" in odd
    export = next(csv.reader(io.StringIO(client.get("/experiments.csv?label=vision").text.splitlines()[1])))
    assert export[1] == "resnet fine-tuning"


def test_a_sort_key_that_nothing_has_is_named_with_those_that_exist(seeded: tuple[Seeded, Client]) -> None:
    ids, client = seeded
    of_search = f"/experiments/{ids.search}"
    for path, export in (("/experiments", "/experiments.csv"), (of_search, f"{of_search}/trials.csv")):
        answer = client.get(f"{path}?order=val_los")
        assert "no trial has &#39;val_los&#39;; expected one of best, latest, " in answer.text
        assert "did you mean &#39;val_loss&#39;?" in answer.text
        assert client.get(f"{export}?order=val_los").status == 409


def test_an_export_has_the_rows_and_columns_of_its_list(seeded: tuple[Seeded, Client]) -> None:
    ids, client = seeded

    def table(path: str, query: str) -> list[dict[str, str]]:
        page = Page(client.get(f"{path}?{query}&page=2").text)
        (link,) = [one["href"] for one in page.all("a") if ".csv" in (one.get("href") or "")]
        return list(csv.DictReader(io.StringIO(client.get(link).text)))

    trials = table(f"/experiments/{ids.search}", "where=lr+<+0.01&order=lr&reverse=1&columns=lr,optimizer.name")
    rates = [float(one["lr"]) for one in trials]
    assert rates == sorted(rates, reverse=True) and len(rates) > 0 and max(rates) < 0.01
    assert list(trials[0])[-5:] == ["best", "best_at", "latest", "lr", "optimizer.name"]
    (every,) = {tuple(one)[-4:] for one in table(f"/experiments/{ids.search}", "where=lr+>+0.01")}
    assert every == tuple(f"hyperparameter {name}" for name in ("lr", "width", "dropout", "optimizer.name"))
    found = table("/experiments", "order=name&columns=curve,owner,val_loss,took&archived=all")
    assert list(found[0]) == ["id", "name", "state", "progress", "best", "owner", "val_loss", "took"]
    assert [one["name"] for one in found] == sorted(one["name"] for one in found)
    (search,) = [one for one in found if one["id"] == str(ids.search)]
    assert float(search["val_loss"]) > 0 and search["owner"] == "ada"


def test_experiments_are_shown_in_groups_with_their_counts(seeded: tuple[Seeded, Client]) -> None:
    _, client = seeded
    page = client.get("/experiments?group=owner&columns=owner").text
    groups = re.findall(r"<summary>([^<]*) <span class=\"note\">([^<]*)<", page)
    named = [(unescape(name).removeprefix("owner: "), note.partition(";")[0]) for name, note in groups]
    assert named == [(HOSTILE, "1 experiment"), ("ada", "3 experiments"), ("grace", "2 experiments")]
    assert re.findall(r'href="(\?group=owner[^"]*#group-grace)"', page) == [
        "?group=owner&amp;columns=owner#group-grace"
    ]
    assert "different values" in client.get("/experiments?group=lr").text
    assert "state: failed <" in client.get("/experiments?group=state").text
    cells = Page(client.get("/experiments?columns=lr,owner,optimizer.name").text).all("td")
    classes = {one["data-label"]: one.get("class") for one in cells if one.get("data-label")}
    assert (classes["lr"], classes["owner"], classes["optimizer.name"]) == ("n", None, None)
    assert "did you mean" in client.get("/experiments?group=ownr").text


def test_the_head_of_a_group_has_the_mean_and_the_standard_deviation(local: ServedSite) -> None:
    store = local.store
    losses: dict[str, list[list[float]]] = {
        "A": [[0.5, 0.2], [0.4], [0.3, math.nan], [math.nan]],
        "B": [[0.7]],
        "C": [[]],
    }
    for name, seeds in {**losses, "D": [[1.0], [1.0]]}.items():
        for seed, values in enumerate(seeds):
            metric = f"loss {seed}" if name == "D" else "loss"
            experiment = store.create_experiment(config={"name": name, "searcher": {"metric": metric}}).id
            run = store.start_run(store.create_trial(experiment, hparams={}, seed=seed).id, allocation_id="a")
            report: dict[str, Any] = {"trial_id": run.trial_id, "run_id": 1, "group": "validation"}
            reports = [
                MetricsReport(**report, steps_completed=step, metrics={metric: value})
                for step, value in enumerate(values)
            ]
            store.report_metrics(reports)
    heads = re.findall(
        r"<summary>name: (\w) <span class=.note.>([^<]*)<", local.owner.get("/experiments?group=name").text
    )
    assert dict(heads) == {
        "A": "4 experiments; mean loss 0.3000, standard deviation 0.1, 1 without a number, 1 NaN or infinite since",
        "B": "1 experiment",
        "C": "1 experiment",
        "D": "2 experiments",
    }


def test_trials_are_grouped_by_a_hyperparameter_with_the_mean_and_the_standard_deviation(local: ServedSite) -> None:
    store = local.store
    experiment = store.create_experiment(config={"searcher": {"metric": "loss"}}).id
    for width, values in ((64, [0.4]), (64, [0.2]), (64, [math.nan]), (64, []), (128, [0.3, math.nan]), (None, [])):
        hparams = {} if width is None else {"width": width}
        run = store.start_run(store.create_trial(experiment, hparams=hparams, seed=0).id, allocation_id="a")
        report: dict[str, Any] = {"trial_id": run.trial_id, "run_id": 1, "group": "validation"}
        reports = [MetricsReport(**report, steps_completed=n, metrics={"loss": one}) for n, one in enumerate(values)]
        store.report_metrics(reports)
    page = local.owner.get(f"/experiments/{experiment}?group=width").text
    (table,) = re.findall(r"of each width</caption>.*?</table>", page, re.DOTALL)
    assert re.findall(r"<t[hd][^>]*>([^<]*)<", table.partition("<tbody>")[2]) == [
        *("64", "4", "0.3000", "0.14", "1 without a number, 1 NaN or infinite"),
        *("128", "1", "0.3000", "–", "1 NaN or infinite since"),  # noqa: RUF001
        *("–", "1", "–", "–", "1 without a number"),  # noqa: RUF001
    ]
    assert "too long" in local.owner.get(f"/experiments/{experiment}?group={'a.' * 30}").text


def test_the_mean_of_extreme_values_is_no_error_and_one_value_has_no_deviation() -> None:
    assert describe_values("loss", [1.7e308, 1.7e308, -1e308], missing=0, diverged=0).startswith("mean loss")
    assert describe_values("loss", [0.3], missing=2, diverged=0) == "mean loss 0.3000, 2 without a number"


def test_trials_are_sorted_by_hyperparameters(seeded: tuple[Seeded, Client]) -> None:
    ids, client = seeded
    table = list(csv.DictReader(io.StringIO(client.get(f"/experiments/{ids.search}/trials.csv").text)))
    expected = [one["id"] for one in sorted(table, key=lambda one: float(one["hyperparameter lr"]))]
    for reverse in ("", "&reverse=1"):
        page = Page(client.get(f"/experiments/{ids.search}?order=hp.lr{reverse}").text)
        assert [row["data-trial"] for row in page.all("tr") if "data-trial" in row] == (
            expected[::-1] if reverse else expected
        )


def test_hyperparameters_that_only_some_trials_have_are_shown(local: ServedSite) -> None:
    decay = {"type": "log", "base": 10, "minval": -4, "maxval": -1}
    items = [
        {"name": "sgd", "decay": decay},
        {"name": "adamw", "momentum": {"type": "double", "minval": 0, "maxval": 1}},
    ]
    space = {"optimizer": {"type": "categorical", "vals": items}}
    experiment = local.store.create_experiment(
        config={"name": "x", "searcher": {"metric": "loss"}, "hyperparameters": space}
    ).id
    for seed, optimizer in enumerate(({"name": "sgd", "decay": 0.01}, {"name": "adamw", "momentum": 0.875})):
        local.store.create_trial(experiment, hparams={"optimizer": optimizer}, seed=seed)
    data = local.owner.get(f"/data/experiments/{experiment}/trials").json
    values = dict(zip(data["names"], zip(*(one["values"] for one in data["trials"]), strict=True), strict=True))
    assert values["optimizer.decay"] in ((0.01, None), (None, 0.01))
    scales = dict(zip(data["names"], data["scales"], strict=True))
    assert scales == {"optimizer.name": "linear", "optimizer.decay": "log", "optimizer.momentum": "linear"}
    for path in (f"/experiments/{experiment}?order=hp.optimizer.momentum", "/compare?trials=1,2"):
        page = Page(local.owner.get(path).text)
        assert "optimizer.momentum" in page.text and "0.875" in page.text and "None" not in page.text, path


def test_the_data_of_a_search_tell_apart_how_trials_ended(local: ServedSite) -> None:
    store = local.store
    searcher = {"metric": "loss", "max_length": {"batches": 100}, "smaller_is_better": False}
    experiment = store.create_experiment(config={"searcher": searcher}).id
    rejected = "EXITED_REASON_INVALID_HP"
    ends = [(State.COMPLETED, 100, ""), (State.COMPLETED, 25, ""), (State.COMPLETED, 100, rejected)]
    ends += [
        (State.COMPLETED, 100, "EXITED_REASON_USER_REQUESTED_STOP"),
        (State.ERROR, 25, ""),
        (State.CANCELED, 25, ""),
    ]
    ends += [(State.ACTIVE, 25, "")]
    for state, length, reason in ends:
        trial = store.create_trial(experiment, hparams={"lr": length}, seed=0).id
        run = store.start_run(trial, allocation_id="a")
        if trial == 1:
            run = store.start_run(trial, allocation_id="b")
        store.set_searcher_operation(trial, length)
        which: dict[str, Any] = {"trial_id": trial, "run_id": run.run_id, "group": "validation", "steps_completed": 1}
        store.report_metrics(
            [MetricsReport(**which, metrics={"loss": 1.0 / trial, "other": math.nan, "size": 7.0 * trial})]
        )
        if reason:
            store.report_early_exit(trial, 1, reason)
        store.set_trial_state(trial, state)
    waiting = store.create_trial(experiment, hparams={}, seed=0).id
    path = f"/data/experiments/{experiment}/trials"
    data = local.owner.get(path).json
    assert [data[name] for name in ("metric", "smaller")] == ["loss", False]
    trials = {one["id"]: one for one in data["trials"]}
    words = ["completed", "stopped early", "rejected", "ended itself", "failed", "canceled", "running", "waiting"]
    assert [trials[one]["word"] for one in sorted(trials)] == words
    (begun, ended, first), (_, _, last) = trials[1]["runs"]
    assert begun <= ended and (first, last) == ("restarted", "completed")
    assert (trials[waiting]["runs"], trials[waiting]["value"], trials[1]["value"]) == ([], None, 1.0)
    other = local.owner.get(f"{path}?series=validation.size").json
    assert other["metric"] == "last size"
    assert {one["id"]: one["value"] for one in other["trials"]} == {**{n: 7.0 * n for n in range(1, 8)}, waiting: None}
    assert local.owner.get(f"{path}?series=validation.unknown").json["metric"] == "loss"


def test_code_is_shown_by_number_and_downloaded_unchanged(seeded: tuple[Seeded, Client]) -> None:
    ids, client = seeded
    assert client.get(f"/experiments/{ids.search}/code?file=../../../etc/passwd").status == 200
    assert client.get(f"/experiments/{ids.search}/code.tar.gz").body[:2] == b"\x1f\x8b"


def test_large_configs_are_shown_as_json() -> None:
    """YAML of a config of 1 MiB would take five seconds of the processor."""
    config = {"name": "ü", "hyperparameters": {"b": 1, "a": [1, 2]}}
    assert code._config_text(config) == "name: ü\nhyperparameters:\n  b: 1\n  a:\n  - 1\n  - 2\n"
    large = {"name": "ü", "data": [0] * 25_000}
    text = code._config_text(large)
    assert text.startswith('{"name": "ü", "data": [0, 0') and json.loads(text) == large


def test_an_archive_takes_bounded_memory_whatever_its_headers_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extended header of a member is read as a whole, and a gigabyte of zeros takes a megabyte."""
    monkeypatch.setattr(context_archive, "_ARCHIVE_LIMIT", 1 << 20)
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 64 << 20
    archive = gzip.compress(header.tobuf() + bytes(header.size), 1)
    (files, text), peak = call_with_peak_memory(code._read_archive, archive, 0)
    assert (files, "damaged" in text) == ([], True)
    assert peak < 8 << 20, f"{peak >> 20} MiB"


def test_rungs_are_the_lengths_of_a_search() -> None:
    assert _rungs([]) == []
    counts = [RungCount(length=100, trials=2, reached=1), RungCount(length=400, trials=2, reached=1)]
    assert _rungs(counts) == [
        {"length": 100, "asked": 4, "reached": 3},
        {"length": 400, "asked": 2, "reached": 1},
    ]


def test_an_empty_store_shows_the_commands_that_fill_it(local: ServedSite) -> None:
    for path, command in {"/experiments": "det experiment create", "/models": "det model create"}.items():
        assert command in local.owner.get(path).text


def test_pages_show_how_long_trials_have_run(local: ServedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = local.store.create_trial(local.store.create_experiment(config={}).id, hparams={}, seed=0)
    for method in ("running_seconds", "trial_running_seconds"):
        monkeypatch.setattr(local.store, method, lambda ids: dict.fromkeys(ids, 10_800))
    pages = f"experiments/{trial.experiment_id}", f"trials/{trial.id}", f"compare?trials={trial.id}", "experiments"
    for path in pages:
        took = re.findall(r'/took">([^<]*)<', local.owner.get(f"/{path}").text)
        assert set(took) == {"3 h 00 min"}, path


def test_the_cost_of_an_experiment_is_a_fact_and_a_column(local: ServedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = local.store.create_trial(local.store.create_experiment(config={}).id, hparams={}, seed=0)
    summary = replace(local.store.experiment_summaries([1])[1], slot_hours=41.26, uncounted_runs=2)
    monkeypatch.setattr(local.store, "experiment_summaries", lambda ids: dict.fromkeys(ids, summary))
    expected = "41.3 slot-hours without 2 runs of unknown slots", "41.3 without 2 runs of unknown slots"
    for path, text in zip(
        (f"experiments/{trial.experiment_id}", "experiments?columns=slot-hours"), expected, strict=True
    ):
        assert text in " ".join(Page(local.owner.get(f"/{path}").text).text.split()), path
    assert local.owner.get("/experiments.csv?columns=slot-hours").text.split()[0].endswith(",slot-hours")


def test_long_lists_have_pages(local: ServedSite) -> None:
    for number in range(60):
        local.store.create_experiment(config={"name": f"n{number}"})
    client = local.owner
    first, second = (Page(client.get(f"/experiments{query}").text) for query in ("", "?page=2"))
    assert "1–50 of 60 experiments" in first.text  # noqa: RUF001
    assert [one["href"] for one in first.all("a") if one.get("rel") == "next"] == ["?page=2"]
    assert "51–60 of 60 experiments" in second.text  # noqa: RUF001
    shown = [re.findall(r"\bn\d+\b", page.text) for page in (first, second)]
    assert shown == [[f"n{number}" for number in numbers] for numbers in (range(59, 9, -1), range(9, -1, -1))]


@pytest.mark.parametrize(
    ("query", "order"),
    [("", "descending"), ("?reverse=1", "ascending"), ("?order=name", "ascending"), ("?order=progress", "descending")],
)
def test_the_header_of_a_list_says_how_it_is_sorted(local: ServedSite, query: str, order: str) -> None:
    local.store.create_experiment(config={"name": "x"})
    page = Page(local.owner.get(f"/experiments{query}").text)
    assert [one["aria-sort"] for one in page.all("th") if "aria-sort" in one] == [order]


@pytest.mark.parametrize("smaller_is_better", [True, False])
def test_the_best_trials_come_first_and_the_header_says_how(local: ServedSite, smaller_is_better: bool) -> None:
    config = {"name": "x", "searcher": {"metric": "loss", "smaller_is_better": smaller_is_better}}
    experiment = local.store.create_experiment(config=config).id
    local.store.create_trial(experiment, hparams={}, seed=0)
    page = Page(local.owner.get(f"/experiments/{experiment}").text)
    order = "ascending" if smaller_is_better else "descending"
    assert [one["aria-sort"] for one in page.all("th") if "aria-sort" in one] == [order]


def test_a_page_after_the_last_is_the_last(local: ServedSite) -> None:
    local.store.create_experiment(config={"name": "only one"})
    for path in ("/experiments?page=99", "/experiments?name=only&page=2"):
        answer = local.owner.get(path)
        assert "only one" in answer.text and "1–1 of 1 experiment" in answer.text  # noqa: RUF001


def test_failures_are_visible_in_all_tables(local: ServedSite) -> None:
    store = local.store
    experiment = store.create_experiment(config={"name": "x", "searcher": {"metric": "loss"}}).id
    for seed in range(3):
        trial = store.create_trial(experiment, hparams={}, seed=seed).id
        run = store.start_run(trial, allocation_id=f"a{seed}").run_id
        report = MetricsReport(
            trial_id=trial, run_id=run, group="validation", steps_completed=1, metrics={"loss": float(seed)}
        )
        store.report_metrics([report])
        if seed < 2:
            store.end_run(trial, run, reason=f"ValueError: bad <batch> {seed}")
            store.set_trial_state(trial, State.ERROR)
    store.set_experiment_state(experiment, State.ERROR, error="trial 1 failed")
    (row,) = re.findall(r"<tr>\s*<td class=.pick.>.*?</tr>", local.owner.get("/experiments").text, re.DOTALL)
    assert "trial 1 failed" in row
    assert re.search(r">3</a>\s*<span class=.note. data-live=[^>]+>2 of 3 failed<", row)
    assert re.search(r">0\.0+</span>\s*<span class=.note. data-live=[^>]+>failed trial<", row)
    page = local.owner.get(f"/experiments/{experiment}").text
    assert "by trial 1, which failed" in page
    assert "3, 2 failed" in page
    assert "ValueError: bad &lt;batch&gt; 1" in page
    assert "ValueError: bad &lt;batch&gt; 0" in local.owner.get("/trials/1").text


def test_all_tables_and_charts_say_since_when_a_metric_is_no_number(local: ServedSite) -> None:
    store = local.store
    experiment = store.create_experiment(config={"name": "x", "searcher": {"metric": "loss"}}).id
    for seed, values in enumerate(({600: 1.0, 1200: math.nan, 1800: math.nan}, {600: 2.0, 1200: 3.0})):
        trial = store.create_trial(experiment, hparams={}, seed=seed).id
        run = store.start_run(trial, allocation_id=f"a{seed}").run_id
        store.report_metrics(
            [
                MetricsReport(
                    trial_id=trial, run_id=run, group="validation", steps_completed=step, metrics={"loss": loss}
                )
                for step, loss in values.items()
            ]
        )
    client, note = local.owner, r"NaN since batch 1200"
    for path, before in {
        "/experiments": "best_failed.></span>",
        f"/experiments/{experiment}": "1.000</span>",
        "/trials/1": "1.000</span>",
        "/compare?trials=1,2": "loss</span>",
    }.items():
        assert re.search(rf"{before}\s*<span class=.note. data-live=[^>]+>{note}<", client.get(path).text), path
        assert client.get(path).text.count(f">{note}<") == 1
    assert f"1.000 by trial 1, {note}" in client.get(f"/experiments/{experiment}").text
    series = client.get("/data/curves?trials=1,2&group=validation&metric=loss&after=700").json["series"]
    assert [one["note"] for one in series] == [note, ""]
    assert [one["gaps"] for one in series] == [[[1200, "NaN"], [1800, "NaN"]], []]
    table = client.get("/data/curves.csv?trials=1,2&group=validation&metric=loss").text.splitlines()
    assert table[2] == "1,1200,NaN"


def test_viewers_see_no_actions(team: ServedSite) -> None:
    experiment = team.store.create_experiment(config={"name": "x"}).id
    team.store.acquire_lease(experiment, "a:1:1:x", seconds=100, state=State.ACTIVE)
    viewer, user = team.log_in("vic"), team.log_in("ann")
    path = f"/experiments/{experiment}"
    assert not [
        one
        for one in Page(viewer.get(path).text).all("form")
        if one.get("method") == "post" and "logout" not in (one["action"] or "")
    ]
    assert "Pause" not in Page(viewer.get(path).text).text
    assert "Pause" in Page(user.get(path).text).text
    assert viewer.get(f"{path}/confirm/pause").status == 403
    assert user.get("/users").status == user.get("/audit").status == 403


def test_the_account_page_shows_all_tokens(team: ServedSite) -> None:
    trial = team.store.create_trial(team.store.create_experiment(config={}, owner="ann").id, hparams={}, seed=0)
    team.store.start_run(trial.id, allocation_id="a")
    token = team.program("ann").call("/api/run_tokens", {"trial_id": trial.id, "run_id": 1}).json["token"]
    page = team.log_in("ann").get("/account").text
    for shown in ("browser session", "API token", f'run 1 of <a href="/trials/{trial.id}">'):
        assert shown in page
    (of_run,) = (one.id for one in team.store.access_tokens("ann") if one.trial_id)
    assert team.log_in("ann").post(f"/account/tokens/{of_run}/delete").status == 303
    assert team.client.with_headers(Authorization=f"Bearer {token}").get("/api/info").status == 401


def test_secrets_are_masked(local: ServedSite) -> None:
    reference = f"{REFERENCE_PREFIX}{'0' * 32}"
    config: dict[str, Any] = {"name": reference, "checkpoint_storage": {"type": "s3", "secret_key": reference}}
    experiment = local.store.create_experiment(config=config, original_config=f"secret_key: {reference}").id
    trial = local.store.create_trial(experiment, hparams={"password": reference}, seed=1).id
    for path in (
        "/experiments",
        "/experiments.csv",
        f"/experiments/{experiment}",
        f"/experiments/{experiment}/code",
        f"/experiments/{experiment}/trials.csv",
        f"/trials/{trial}",
        f"/compare?trials={trial}",
        f"/data/experiments/{experiment}/trials",
    ):
        text = local.owner.get(path).text
        assert MASK in text, path
        assert REFERENCE_PREFIX not in text, path


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),  # noqa: RUF001
        (0.123456, "0.1235"),
        (1e-7, "1e−7"),  # noqa: RUF001
        (123456, "123\u2009456"),
        (-2.5, "−2.5"),  # noqa: RUF001
        ("a\x1b[2Jb", "ab"),
        (True, "True"),
    ],
)
def test_numbers_are_short(value: object, shown: str) -> None:
    assert format_number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(2.4, "2.400"), (1600.0, "1600"), (0.5, "0.5000"), (1e-9, "1e−9"), (float("nan"), "nan")],  # noqa: RUF001
)
def test_values_of_metrics_line_up(value: float, shown: str) -> None:
    assert format_metric(value) == shown


@pytest.mark.parametrize(
    ("line", "segments"),
    [
        ("plain", [("", "plain")]),
        ("\x1b[31mred\x1b[0m plain", [("fg1", "red"), ("", " plain")]),
        ("\x1b[1;38;2;1;2;3mbold", [("b", "bold")]),
        ("\x1b]8;;http://x\x07link\x1b]8;;\x07\x1b[1m!", [("", "link"), ("b", "!")]),
        ("10 %\r\x1b[32m20 %", [("fg2", "20 %")]),
        ("\x1b[99999999999999999999m<b>", [("", "<b>")]),
        ("a\u202eb\x1b[1mc", [("", "ab"), ("b", "c")]),
        ("\x1b[1;4;1m" * 1000 + "x", [("u b", "x")]),
        ("\x1b[38;5;1;3mx\x1b[0;48;2;1;1;1;4my\x1b[1;38mz", [("i", "x"), ("u", "y"), ("u b", "z")]),
    ],
)
def test_colours_of_logs_become_classes_and_nothing_else_survives(line: str, segments: list[tuple[str, str]]) -> None:
    assert colored_segments(line) == segments


def test_many_codes_in_one_sequence_take_linear_time() -> None:
    begin = time.process_time()
    assert _changed_style(["b"], ";" * 500_000 + "3") == ["i"]
    assert time.process_time() - begin < 5  # half a minute if the others moved up with each code


def test_text_of_unknown_origin_is_short_and_printable() -> None:
    assert clean_text("\0\x1b[31m\u202ea\nb" + "x" * 20_000) == "ab" + "x" * 9998


# Records that workers and programs can make, but no command


HALF = "\ud800"
"""Half of a surrogate pair, which JSON can express and UTF-8 cannot encode."""


@pytest.mark.parametrize(
    "config",
    [
        {"labels": [HALF], "searcher": {"name": HALF, "metric": HALF}, "hyperparameters": {HALF: HALF}},
        {"searcher": 5, "hyperparameters": [1]},
        {"searcher": [1]},
        {"searcher": "x"},
        {"searcher": {"max_length": 5, "metric": [1]}, "hyperparameters": 5},
        {"searcher": {"name": {}}},
        {"resources": {"slots_per_trial": 10**400}},
    ],
    ids=str,
)
def test_pages_show_records_that_no_command_makes(local: ServedSite, config: dict[str, Any]) -> None:
    store = local.store
    experiment = store.create_experiment(config=config).id
    trial = store.create_trial(experiment, hparams={HALF: [HALF]}, seed=0).id
    store.start_run(trial, allocation_id="a")
    store.begin_checkpoint("c", trial_id=trial, run_id=1, storage={"type": HALF})
    store.complete_checkpoint("c", run_id=1, steps_completed=1, resources={HALF: 1}, metadata={HALF: HALF})
    model = store.create_model("m", labels=[HALF], metadata={HALF: HALF}).id
    store.add_model_version(model, "c", labels=[HALF], metadata={HALF: HALF})
    store.set_trial_metadata(trial, 1, {HALF: HALF})
    of_experiment, owner = f"/experiments/{experiment}", local.owner
    for path in (
        "/experiments",
        "/experiments.csv",
        of_experiment,
        f"{of_experiment}/search",
        f"{of_experiment}/trials.csv",
        f"{of_experiment}/code",
        f"/data{of_experiment}/trials",
        f"/trials/{trial}",
        f"/compare?trials={trial}",
        "/models",
        "/models.csv",
        f"/models/{model}",
    ):
        assert owner.get(path).status == 200, path


def test_a_page_shows_a_bounded_number_of_metrics() -> None:
    """A report may have a million, and a page of all of them keeps the server busy."""
    names = {"a": [str(number) for number in range(2 * MAX_METRICS)], "validation": ["loss", "x" * 2000]}
    shown = sorted_groups(names)
    assert list(shown) == ["validation", "a"]
    assert shown["validation"] == ["loss"]
    assert sum(map(len, shown.values())) == MAX_METRICS


def test_a_page_shows_a_bounded_number_of_characters_of_metrics() -> None:
    """Pages have each name several times, so that 5000 of the longest ones would take gigabytes of memory."""
    shown = sorted_groups({"g" * 4000: [f"{number:04}" for number in range(MAX_METRICS)]})
    characters = sum(len(group) + len(name) for group, names in shown.items() for name in names)
    assert MAX_CHARACTERS / 2 < characters <= MAX_CHARACTERS


def test_nested_hyperparameters_cannot_fill_the_memory(local: ServedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few of them would become gigabytes if each repeated the long name around it, as those of earlier releases."""
    monkeypatch.setattr(_column_types, "require_short_names", lambda values: None)
    experiment = local.store.create_experiment(config={"name": "nested"}, owner="ada").id
    values = {"n" * 8000: {str(number): number for number in range(600)}}
    trial = local.store.create_trial(experiment, hparams=values, seed=0).id
    for path in (f"/trials/{trial}", f"/experiments/{experiment}", f"/compare?trials={trial}"):
        page, peak = call_with_peak_memory(local.owner.get, path)
        assert "shorten the outer ones" in page.text, path
        assert peak < 32 << 20
    assert local.owner.get("/experiments").status == 200


def test_tables_show_the_beginnings_of_hyperparameters(local: ServedSite) -> None:
    store = local.store
    experiment = store.create_experiment(config={"name": "long"}, owner="ada").id
    long = [f"{'n' * 500}{number}" for number in range(10)]
    for number in range(5):
        values = {"lr": number, "text": f"{number}{'&' * 9000}", **dict.fromkeys(long, number)}
        store.create_trial(experiment, hparams=values, seed=0)
    trials = ",".join(str(one.id) for one in store.trials(experiment))
    for path in (f"/experiments/{experiment}", f"/compare?trials={trials}"):
        page = local.owner.get(path)
        assert page.status == 200
        assert "&amp;" * 50 in page.text
        assert len(page.body) < 100_000, path
    data = local.owner.get(f"/data/experiments/{experiment}/trials")
    assert data.json["names"] == ["lr", "text"]
    assert len(data.body) < 10_000


def test_pages_name_the_records_whose_values_they_leave_out(local: ServedSite) -> None:
    store, large = local.store, {"text": "x" * LONGEST_BRIEF}
    experiment = store.create_experiment(config=large).id
    small = store.create_trial(experiment, hparams={"lr": 1}, seed=0).id
    trial = store.create_trial(experiment, hparams=large, seed=0).id
    sentence = f"Hyperparameters of more than 16 KiB are left out: trials {trial}."
    assert sentence in local.owner.get(f"/experiments/{experiment}").text
    page = local.owner.get(f"/compare?trials={small},{trial}").text
    assert sentence in page
    assert f"Configs of more than 16 KiB are not compared: experiments {experiment}." in page
    assert "xxx" in local.owner.get(f"/trials/{trial}").text


@pytest.mark.integration
def test_deep_hyperparameters_of_many_trials_take_little_memory(local: ServedSite) -> None:
    """Names of nested values repeat those around them: 15 KiB of them have up to 2 MiB together."""
    store, deep = local.store, dict[str, Any]()
    for number in range(900):
        deep = {"a": number, "b": deep}
    experiment = store.create_experiment(config={"searcher": {"metric": "loss"}}).id
    trials = [store.create_trial(experiment, hparams=deep, seed=0).id for _ in range(20)]
    for path in (f"/experiments/{experiment}", f"/compare?trials={','.join(map(str, trials))}"):
        answer, peak = call_with_peak_memory(local.owner.get, path)
        assert answer.status == 200, path
        assert peak < 8 << 20, path


def test_any_config_can_have_a_search(local: ServedSite) -> None:
    """The API records configs that nothing has checked."""
    space = {"a": {"type": "categorical", "vals": 5}, "b": {"type": ["log"]}, "c": {"type": "log"}, "d": 5}
    experiment = local.store.create_experiment(config={"hyperparameters": space}, owner="ada").id
    local.store.create_trial(experiment, hparams=dict.fromkeys(space, 1), seed=0)
    data = local.owner.get(f"/data/experiments/{experiment}/trials").json
    assert dict(zip(data["names"], data["scales"], strict=True)) == {
        **dict.fromkeys(space, "linear"),
        "c": "log",
    }
