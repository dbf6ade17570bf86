"""What people do on pages: watch live values, use the keyboard, choose ranges, confirm, and save pictures."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest
from det_server.pages import utilization

from det_core.interfaces.account_records import Role
from det_core.interfaces.records import LogLine, MetricsReport, Run, State, SystemMetrics
from det_core.interfaces.tracking import TrackingStore

from ..seeded_store import HOSTILE, Seeded
from ..serving import PASSWORD, ServedSite, account_access, served, wait_for
from .conftest import Windows

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

pytestmark = pytest.mark.integration

DRAWING_MS = 100
_POSITIONS = "[...document.querySelectorAll('h2, tr')].map((one) => one.getBoundingClientRect().top)"


def _report(store: TrackingStore, trial_id: int, step: int, loss: float) -> None:
    run = store.trial(trial_id).run_id
    values = {"val_loss": loss}
    report = MetricsReport(trial_id=trial_id, run_id=run, group="validation", steps_completed=step, metrics=values)
    store.report_metrics([report])


def test_a_report_is_seen_and_nothing_else_moves(windows: Windows, served_seed: tuple[ServedSite, Seeded]) -> None:
    site, seeded = served_seed
    trial_id = seeded.running_trial
    with windows.visit() as visit:
        page = visit.open(f"/experiments/{seeded.running}")
        visit.wait_until_live()
        others = page.locator(f"#trials tr:not([data-trial='{trial_id}']) td:not([data-live$='/took'])")
        rows = others.all_inner_texts()
        positions = page.evaluate(_POSITIONS)
        _report(site.store, trial_id, 5000, 0.01234)
        page.locator(f'[data-live="trial/{trial_id}/best"]', has_text="0.01234").wait_for()
        page.locator("#facts", has_text="0.01234").wait_for()
        assert others.all_inner_texts() == rows != []
        assert page.evaluate(_POSITIONS) == positions


def test_the_curve_the_log_and_the_list_follow_after_a_failed_request(
    windows: Windows, served_seed: tuple[ServedSite, Seeded]
) -> None:
    site, seeded = served_seed
    with windows.visit() as visit:
        page = visit.open(f"/trials/{seeded.running_trial}")
        visit.wait_until_live()
        figure = page.locator("figure", has_text="val_loss").first
        figure.locator(".values summary").click()
        line = LogLine(
            trial_id=seeded.running_trial,
            run_id=1,
            rank=0,
            stdtype="stdout",
            log=f"\x1b[31m{HOSTILE}\x1b[0m",
            time=datetime.now(timezone.utc),
        )
        data = re.compile("/data/(curves|logs)")
        page.route(data, lambda route: route.abort())
        with page.expect_event("requestfailed", lambda request: "/data/curves" in request.url):
            _report(site.store, seeded.running_trial, 5040, 0.0111)
        with page.expect_event("requestfailed", lambda request: "/data/logs" in request.url):
            site.store.add_logs([line])
        page.unroute(data)
        visit.problems.clear()
        figure.locator("td", has_text="0.0111").first.wait_for()
        page.locator(".log .fg1", has_text="onerror").wait_for()
        made = site.store.create_experiment(config={"name": "appeared"}).id
        try:
            other = visit.open("/experiments")
            other.get_by_role("link", name="appeared").wait_for()
            site.store.edit_experiment(made, name="renamed")
            newest = site.store.create_experiment(config={"name": "came while looking"}).id
            other.get_by_role("link", name="came while looking").wait_for()
            site.store.set_trial_state(site.store.create_trial(made, hparams={}, seed=0).id, State.ERROR)
            other.locator(f'[data-live="experiment/{made}/failed"]', has_text="1 of 1 failed").wait_for()
        finally:
            site.store.delete_experiment(made)
            site.store.delete_experiment(newest)


def test_charts_of_new_metrics_and_utilization_appear_and_follow(
    windows: Windows, served_seed: tuple[ServedSite, Seeded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(utilization, "_MOST_SECONDS", -1)  # the page gets two samples at once, and asks for more
    monkeypatch.setattr(utilization, "_SAMPLES_AT_ONCE", 2)
    site, seeded = served_seed
    trial = site.store.create_trial(seeded.running, hparams={"lr": 0.2}, seed=1).id
    run = site.store.start_run(trial, allocation_id="new").run_id

    def report(group: str, name: str, *values: float) -> None:
        which = {"trial_id": trial, "run_id": run, "group": group}
        steps = enumerate(values, 1)
        site.store.report_metrics([MetricsReport(**which, steps_completed=n, metrics={name: one}) for n, one in steps])

    def use(*values: float) -> None:
        which = {"trial_id": trial, "run_id": run, "group": "cpu", "time": datetime.now(timezone.utc)}
        samples = [SystemMetrics(**which, metrics={"node-1": {"cpu_util_simple": one}}) for one in values]
        site.store.report_system_metrics(samples)

    with windows.visit() as visit:
        page = visit.open(f"/trials/{trial}")
        page.get_by_text("No metrics yet").wait_for()
        page.get_by_text("Nothing was measured").wait_for()
        visit.wait_until_live()
        report("training", "loss", 0.5)
        page.locator("figure[data-state=drawn]", has_text="loss").wait_for()
        report("validation", "accuracy", 0.75, 0.875)
        accuracy = page.locator("figure[data-state=drawn]", has_text="accuracy")
        accuracy.wait_for()
        use(12.5, 13.5, 11.5, 15.5, 16.5)
        cpu = page.locator("#utilization figure")
        cpu.scroll_into_view_if_needed()
        page.locator("#utilization figure[data-state=drawn]").wait_for()
        for figure in (accuracy, cpu):
            figure.locator(".values summary").click()
        for value in ("12.5", "11.5", "16.5"):
            cpu.locator("td", has_text=value).first.wait_for()
        report("validation", "accuracy", 0.75, 0.875, 0.9375)
        accuracy.locator("td", has_text="0.9375").first.wait_for()
        use(14.25)
        cpu.locator("td", has_text="14.25").first.wait_for()
        again = site.store.start_run(trial, allocation_id="again").run_id  # without a checkpoint: from the start
        page.locator("#runs tbody tr").nth(1).wait_for()
        which = {"trial_id": trial, "run_id": again, "group": "validation", "steps_completed": 1}
        site.store.report_metrics([MetricsReport(**which, metrics={"accuracy": 0.25})])
        figure, value = page.locator("figure", has_text="accuracy").first, accuracy.locator("td", has_text="0.25").first

        def is_drawn() -> bool:
            figure.scroll_into_view_if_needed()  # it may have become another one, and is drawn in view
            return value.count() > 0

        wait_for(is_drawn)
        assert accuracy.locator("td", has_text="0.9375").count() == 0


def test_the_search_follows(windows: Windows, served_seed: tuple[ServedSite, Seeded]) -> None:
    site, seeded = served_seed
    with windows.visit() as visit:
        page = visit.open(f"/experiments/{seeded.running}/search")
        page.get_by_label("greatest lr").fill("5")
        page.keyboard.press("Tab")
        trial = site.store.create_trial(seeded.running, hparams={"lr": 0.3}, seed=1).id
        page.locator("#chosen tbody a", has_text=str(trial)).wait_for()
        assert page.get_by_label("greatest lr").input_value() == "5"


@pytest.mark.soak
def test_forty_long_curves_are_drawn_quickly(windows: Windows, served_seed: tuple[ServedSite, Seeded]) -> None:
    _, seeded = served_seed
    series = [
        {
            "id": k,
            "label": f"trial {k}",
            "x": [10 * i + k for i in range(2000)],
            "y": [1 / (1 + i + k) for i in range(2000)],
        }
        for k in range(1, 41)
    ]
    with windows.visit() as visit:
        visit.page.route("**/data/curves?*", lambda route: route.fulfill(json={"series": series}))
        page = visit.open(f"/experiments/{seeded.search}")
        page.locator("#curves[data-state=drawn]").wait_for()
        # Commands to the canvas are executed later, so a pixel is read back. Other suites share the
        # cores, so the best of ten counts.
        times = page.evaluate(
            """async () => {
              const slider = document.querySelector('.chart-controls input[type=range]');
              const times = [];
              for (let k = 0; k < 10; k++) {
                const started = performance.now();
                slider.value = String(k % 2 ? 0.3 : 0.6);
                slider.dispatchEvent(new Event('input', {bubbles: true}));
                await new Promise((done) => queueMicrotask(done)); // uPlot draws in one
                document.querySelector('#curves canvas').getContext('2d').getImageData(0, 0, 1, 1);
                times.push(performance.now() - started);
              }
              return times;
            }"""
        )
        visit.problems.clear()  # the browser warns of reading pixels
        print(f"40 curves of 2000 points: smoothed, drawn and read back in {[round(one) for one in sorted(times)]} ms")
        assert min(times) < DRAWING_MS


def test_charts_can_be_read_with_the_keyboard(windows: Windows, seeded: Seeded) -> None:
    with windows.visit() as visit:
        page = visit.open(f"/experiments/{seeded.search}")
        page.locator("#curves .plot").focus()
        tip = page.locator("#curves .tip")
        page.keyboard.press("ArrowRight")
        first = tip.inner_text()
        assert first.startswith(f"trial {seeded.best_trial}: ")
        page.keyboard.press("End")
        assert tip.inner_text() != first
        page.keyboard.press("ArrowDown")
        assert not tip.inner_text().startswith(f"trial {seeded.best_trial}: ")
        page.keyboard.press("+")
        page.keyboard.press("Escape")
        assert tip.is_hidden()


def test_a_chart_has_other_axes_and_a_range_which_are_in_the_url(windows: Windows, seeded: Seeded) -> None:
    shown = "document.querySelector('#curves').dataset.range"
    with windows.visit() as visit:
        page = visit.open(f"/experiments/{seeded.search}")
        choice, tip = page.get_by_label("over"), page.locator("#curves .tip")
        choice.select_option("time")
        page.wait_for_function(f"() => !{shown}.endsWith('640')")
        page.locator("#curves .plot").focus()
        page.keyboard.press("End")
        assert re.search(r" at [\d.]+ (s|min)", tip.inner_text())
        page.locator("#curves .range summary").click()
        least = page.get_by_label("least shown value of val_loss, validation")
        least.fill("0.25")
        page.keyboard.press("Tab")
        page.wait_for_url("**axis=time&y.curves=0.25%7E")
        choice.select_option("epoch")
        page.get_by_text("curves: no reported epochs").wait_for()
        page.reload()
        page.get_by_text("curves: no reported epochs").wait_for()
        assert least.input_value() == "0.25"


def test_the_legend_hides_curves_and_the_cursor_reads_the_others(windows: Windows, seeded: Seeded) -> None:
    with windows.visit() as visit:
        page = visit.open(f"/experiments/{seeded.search}")
        legend, tip = page.locator("#curves .legend"), page.locator("#curves .tip")
        box = page.locator("#curves .u-over").bounding_box()
        assert box
        page.mouse.move(box["x"] + box["width"] / 200, box["y"] + 1)
        values = tip.locator("tr").all_inner_texts()
        assert values[0].startswith(f"trial {seeded.best_trial}") and values[-1].strip() == "and 4 more"
        first = legend.get_by_role("button").first
        first.focus()
        page.keyboard.press("Enter")
        assert first.get_attribute("aria-pressed") == "false"
        assert page.evaluate("location.search") == f"?hide.curves={seeded.best_trial}"
        page.reload()
        visit.wait_until_drawn()
        page.mouse.move(box["x"] + box["width"] / 200, box["y"] + 2)
        assert seeded.best_trial not in [int(re.findall(r"\d+", one)[0]) for one in tip.locator("tr").all_inner_texts()]
        legend.get_by_role("button", name="6 more").click(modifiers=["Shift"])
        assert len(page.evaluate("new URLSearchParams(location.search).getAll('hide.curves')")) == 10
        legend.get_by_role("button", name="6 more").click()
        page.get_by_text("All curves are hidden.").wait_for()


def test_a_value_that_is_no_number_interrupts_a_curve(
    windows: Windows, served_seed: tuple[ServedSite, Seeded], new_run: Run
) -> None:
    which = {"trial_id": new_run.trial_id, "run_id": new_run.run_id, "group": "training"}
    values = {step: math.nan if step == 5 else 1.0 + step for step in range(10)}
    served_seed[0].store.report_metrics(
        [MetricsReport(**which, steps_completed=step, metrics={"loss": value}) for step, value in values.items()]
    )
    with windows.visit() as visit:
        page = visit.open(f"/trials/{new_run.trial_id}")
        figure = page.locator("figure[data-state=drawn]", has_text="loss")
        figure.locator(".values summary").click()
        figure.get_by_role("cell", name="NaN at 5").wait_for()
        box = figure.locator(".u-over").bounding_box()
        assert box
        page.mouse.move(box["x"] + box["width"] * 5 / 9, box["y"] + 1)
        assert "NaN" in figure.locator(".tip").inner_text()


def test_everything_is_reached_by_tab_and_the_focus_is_visible(windows: Windows, seeded: Seeded) -> None:
    with windows.visit() as visit:
        page = visit.open("/experiments")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to content"
        wanted = set(
            page.evaluate(
                "[...document.querySelectorAll('a[href], button, input:not([type=hidden]), select')]"
                ".map((one, i) => (one.dataset.k = i))"
            )
        )
        for _ in range(len(wanted) + 10):
            reached = page.evaluate(
                "(() => { const one = document.activeElement; const look = getComputedStyle(one);"
                " return [Number(one.dataset.k), look.outlineStyle !== 'none' && parseFloat(look.outlineWidth) >= 1];"
                " })()"
            )
            assert reached[1], page.evaluate("document.activeElement.outerHTML")
            wanted.discard(reached[0])
            if not wanted:
                break
            page.keyboard.press("Tab")
        assert not wanted


def test_groups_are_closed_with_the_keyboard_and_stay_so(
    windows: Windows, served_seed: tuple[ServedSite, Seeded]
) -> None:
    site, seeded = served_seed
    with windows.visit() as visit:
        page = visit.open("/experiments?group=owner")
        visit.wait_until_live()
        row = page.get_by_role("link", name="resnet fine-tuning")
        page.locator("#group-grace summary").focus()
        page.keyboard.press("Enter")
        row.wait_for(state="hidden")
        assert page.get_by_role("link", name="mnist asha").is_visible()
        site.store.edit_experiment(seeded.queued, name="queued, with another name")
        page.evaluate("import('/static/live.js').then((live) => live.refreshSoon('list'))")
        page.locator("#group-grace summary").blur()
        page.get_by_text("queued, with another name").wait_for(state="attached")
        assert row.is_hidden()
        page.locator("#group-grace summary").press("Enter")
        row.wait_for()
    site.store.edit_experiment(seeded.queued, name="queued after the others")


def test_actions_ask_in_a_dialog_that_the_keyboard_closes(windows: Windows, seeded: Seeded) -> None:
    with windows.visit() as visit:
        page = visit.open(f"/experiments/{seeded.running}")
        kill = page.get_by_role("link", name="Kill")
        kill.focus()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        dialog.wait_for()
        assert "det experiment kill" in dialog.inner_text()
        assert page.evaluate("document.activeElement.closest('dialog') !== null")
        page.keyboard.press("Escape")
        dialog.wait_for(state="detached")
        assert page.evaluate("document.activeElement.textContent") == "Kill"


def test_choosing_a_range_filters_the_table_and_is_in_the_url(windows: Windows, seeded: Seeded) -> None:
    with windows.visit() as visit:
        page = visit.open(f"/experiments/{seeded.search}/search")
        rows = page.locator("#chosen tbody tr")
        every = rows.count()
        page.get_by_label("least lr").fill("0.005")
        page.keyboard.press("Tab")
        fewer = rows.count()
        assert 0 < fewer < every
        file = page.request.get(page.locator(".section-head:has(#chosen-heading) .export").evaluate("one => one.href"))
        assert len(file.text().splitlines()) == fewer + 1
        assert page.locator(".parallel .line.out").count() == every - fewer
        link = page.evaluate("location.href")
        assert "ranges=lr" in link
        axis = page.locator(".parallel .grab").last.bounding_box()
        assert axis
        page.mouse.move(axis["x"] + 16, axis["y"] + axis["height"] - 10)
        page.mouse.down()
        page.mouse.move(axis["x"] + 16, axis["y"] + axis["height"] / 2, steps=4)
        page.mouse.up()
        assert "val_loss" in page.evaluate("location.search")
        assert rows.count() <= fewer
        page.goto(link)
        visit.wait_until_drawn()
        assert rows.count() == fewer
        assert page.get_by_label("least lr").input_value() == "0.005"


def test_a_search_shows_another_metric_and_how_trials_ended(windows: Windows, seeded: Seeded) -> None:
    with windows.visit() as visit:
        page = visit.open(f"/experiments/{seeded.search}/search?across=dropout")
        marks = page.get_by_role("list", name="Marks of trials")
        assert marks.get_by_role("listitem").all_inner_texts() == ["stopped early 16"]
        assert page.locator(".timeline .run").count() == 16
        assert page.locator(".history .best").count() == 1
        page.get_by_label("Metric").select_option("validation.accuracy")
        page.wait_for_url("**series=validation.accuracy**")
        visit.wait_until_drawn()
        page.get_by_role("heading", name="Hyperparameters and last accuracy").wait_for()
        page.get_by_label("the greatest is the best").check()
        page.get_by_text("The line is the greatest value so far.").wait_for()
        page.get_by_label("up").select_option("lr")
        for part in ("across=dropout", "up=lr", "greater=1"):
            assert part in page.evaluate("location.search")
        page.reload()
        visit.wait_until_drawn()
        assert page.get_by_label("across").input_value() == "dropout"


def test_switches_of_charts_are_in_the_url(windows: Windows, seeded: Seeded) -> None:
    with windows.visit() as visit:
        page = visit.open(f"/experiments/{seeded.search}?log=1&smooth=0.5")
        assert page.get_by_label("log scale").is_checked()
        assert page.get_by_label("smoothing").input_value() == "0.5"
        page.get_by_label("log scale").uncheck()
        query = page.evaluate("location.search")
        assert "log=" not in query and "smooth=0.5" in query
        page.get_by_label("Metric").select_option("training.loss")
        page.wait_for_url("**series=training.loss**")
        visit.wait_until_drawn()
        assert "loss, training" in page.locator("#curves figcaption").inner_text()
        assert "smooth=0.5" in page.evaluate("location.search")


def test_the_zoom_of_a_chart_is_in_the_url(windows: Windows, seeded: Seeded) -> None:
    shown = "document.querySelector('#curves').dataset.range"
    with windows.visit() as visit:
        page = visit.open(f"/experiments/{seeded.search}")
        whole = page.evaluate(shown)
        assert "zoom" not in page.evaluate("location.search")
        box = page.locator("#curves .u-over").bounding_box()
        assert box
        page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 50, steps=4)
        page.mouse.up()
        page.wait_for_url("**zoom.curves=**")
        part = page.evaluate(shown)
        assert part != whole
        page.reload()
        visit.wait_until_drawn()
        assert page.evaluate(shown) == part
        page.get_by_label("log scale").check()
        assert page.evaluate(shown) == part
        page.get_by_role("link", name="batches").click()
        page.wait_for_url("**order=batches**")
        visit.wait_until_drawn()
        assert page.evaluate(shown) == part
        page.locator("#curves .plot").focus()
        page.keyboard.press("Escape")
        page.wait_for_function("!location.search.includes('zoom')")
        assert page.evaluate(shown) == whole


@pytest.fixture
def new_run(served_seed: tuple[ServedSite, Seeded]) -> Iterator[Run]:
    """Start a trial in an experiment that is deleted after the test."""
    store = served_seed[0].store
    experiment = store.create_experiment(config={"name": "of one test"}).id
    try:
        yield store.start_run(store.create_trial(experiment, hparams={}, seed=1).id, allocation_id="one")
    finally:
        store.delete_experiment(experiment)


def test_earlier_lines_of_logs_are_shown(
    windows: Windows, served_seed: tuple[ServedSite, Seeded], new_run: Run
) -> None:
    site, _ = served_seed

    def say(*texts: str) -> None:
        which = {"trial_id": new_run.trial_id, "run_id": new_run.run_id, "rank": 0, "stdtype": "stdout"}
        now = datetime.now(timezone.utc)
        site.store.add_logs([LogLine(**which, log=text, time=now) for text in texts])

    texts = [f"line {number}" for number in range(1200)]
    say(*texts)
    with windows.visit() as visit:
        page = visit.open(f"/trials/{new_run.trial_id}")
        lines, button = page.locator(".log li"), page.get_by_role("button", name="Earlier lines")
        assert lines.all_inner_texts() == texts[700:]
        button.click()
        page.locator(".log li", has_text="line 200").wait_for()
        assert lines.all_inner_texts() == texts[200:]
        assert not page.get_by_label("follow").is_checked()
        button.click()
        page.locator(".log li", has_text=re.compile("^line 0$")).wait_for()
        button.wait_for(state="hidden")
        say("the newest")
        page.locator(".log li", has_text="the newest").wait_for()
        assert lines.all_inner_texts() == [*texts, "the newest"]


def answer_in_parts(route: Route) -> None:
    """Say that there are more lines after some, as a busy server does."""
    answer = route.fetch().json()
    route.fulfill(json={**answer, "more": bool(answer["lines"])})


def test_logs_are_filtered_and_do_not_move_for_a_reader(
    windows: Windows, served_seed: tuple[ServedSite, Seeded], new_run: Run
) -> None:
    store, now = served_seed[0].store, datetime.now(timezone.utc)

    def say(*texts: str, level: str = "INFO") -> None:
        which: dict[str, Any] = {"trial_id": new_run.trial_id, "run_id": new_run.run_id, "time": now, "level": level}
        store.add_logs([LogLine(**which, rank=0, stdtype="stderr", log=text) for text in texts])

    say(*(f"line {number}" for number in range(400)))
    say("line of a warning", level="WARNING")
    with windows.visit() as visit:
        page = visit.open(f"/trials/{new_run.trial_id}?log=1")
        visit.wait_until_live()
        log, lines = page.locator(".log"), page.locator(".log li")
        jump = page.get_by_role("button", name="jump to the end")
        at_end = "(one) => one.scrollTop + one.clientHeight >= one.scrollHeight - 2"
        assert log.evaluate(at_end) and jump.is_hidden()
        log.evaluate("(one) => (one.scrollTop = 300)")
        jump.wait_for()
        page.route("**/data/logs/*after=*", answer_in_parts)
        say("a new line")
        page.get_by_role("button", name="New lines: jump to the end").wait_for()
        page.unroute("**/data/logs/*after=*")
        assert log.evaluate("(one) => one.scrollTop") == 300
        jump.click()
        jump.wait_for(state="hidden")
        assert page.get_by_label("follow").is_checked()
        assert log.evaluate(at_end)
        page.get_by_label("Level").select_option("WARNING")
        page.wait_for_function("() => document.querySelectorAll('.log li').length === 1")
        assert lines.get_attribute("title").endswith("rank 0 err, WARNING")  # type: ignore[union-attr]
        assert page.evaluate("location.search") == "?log=1&level=WARNING"
        assert "level=WARNING" in (page.get_by_role("link", name="Download").get_attribute("href") or "")
        say("unseen")
        say("another warning", level="ERROR")
        page.locator(".log li", has_text="another warning").wait_for()
        assert lines.all_inner_texts() == ["line of a warning", "another warning"]
        page.reload()
        assert lines.all_inner_texts() == ["line of a warning", "another warning"]
        page.get_by_label("Text").fill("nothing like that")
        page.keyboard.press("Enter")
        page.get_by_text("No line matches this filter.").wait_for()


def test_a_zoomed_chart_shows_every_report(
    windows: Windows, served_seed: tuple[ServedSite, Seeded], new_run: Run
) -> None:
    which = {"trial_id": new_run.trial_id, "run_id": new_run.run_id, "group": "training"}
    losses = {step: float(step * 7919 % 1000) for step in range(3000)}
    served_seed[0].store.report_metrics(
        [MetricsReport(**which, steps_completed=step, metrics={"loss": loss}) for step, loss in losses.items()]
    )
    with windows.visit() as visit:
        page = visit.open(f"/trials/{new_run.trial_id}")
        figure = page.locator("figure[data-state=drawn]", has_text="loss")
        figure.locator(".values summary").click()
        source = figure.get_attribute("data-src")
        (whole,) = page.evaluate("async (source) => (await (await fetch(source)).json()).series", source)
        elsewhere = [step for step in whole["x"] if not 1000 <= step <= 1020]
        assert len(elsewhere) + 21 > len(whole["x"])
        page.goto(f"{page.url}?zoom.{figure.get_attribute('id')}=999.5~1020.5")
        figure.locator(".values summary").click()
        figure.get_by_role("cell", name=str(len(elsewhere) + 21), exact=True).wait_for()
        assert page.evaluate("document.querySelector('figure').dataset.range") == "999.5 to 1021"


@pytest.mark.parametrize("path", ["", "/search"])
def test_pictures_are_saved_as_svg(windows: Windows, seeded: Seeded, path: str, tmp_path: Path) -> None:
    with windows.visit(accept_downloads=True) as visit:
        page = visit.open(f"/experiments/{seeded.search}{path}")
        with page.expect_download() as download:
            page.get_by_role("button", name="SVG").first.click()
        target = tmp_path / "x.svg"
        download.value.save_as(target)
        root = ElementTree.parse(target).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert len(root.findall(".//{*}title")) >= 16
        assert path or f"trial {seeded.best_trial}" in [
            text.text for text in root.iter("{http://www.w3.org/2000/svg}text")
        ]


def test_the_legend_names_the_coloured_curves(windows: Windows, seeded: Seeded) -> None:
    with windows.visit() as visit:
        page = visit.open(f"/experiments/{seeded.search}")
        entries = page.locator("#curves .legend li").all_inner_texts()
        assert entries[0] == f"trial {seeded.best_trial}"
        assert len(entries) == 11 and entries[-1] == "6 more"
        (entry,) = visit.open(f"/experiments/{seeded.failed}").locator("#curves .legend li").all_inner_texts()
        assert entry.endswith(", NaN since batch 240")


def test_trials_are_compared_from_the_table(windows: Windows, seeded: Seeded) -> None:
    with windows.visit() as visit:
        page = visit.open(f"/experiments/{seeded.search}")
        boxes = page.locator("input[name=trials]")
        chosen = [boxes.nth(k).get_attribute("value") for k in range(2)]
        for k in range(2):
            boxes.nth(k).check()
        page.get_by_role("button", name="Compare selected").click()
        page.wait_for_url(f"**/compare?trials={chosen[0]},{chosen[1]}")
        visit.wait_until_drawn()


def test_experiments_are_compared_from_their_list_and_the_report_has_the_axis(windows: Windows, seeded: Seeded) -> None:
    with windows.visit() as visit:
        page = visit.open("/experiments")
        boxes = page.locator("input[name=experiments]")
        page.get_by_label("select all").check()
        assert page.locator("input[name=experiments]:checked").count() == boxes.count()
        page.get_by_label("select all").uncheck()
        for one in (seeded.search, seeded.failed):
            page.locator(f"input[name=experiments][value='{one}']").check()
        page.get_by_role("button", name="Compare code").click()
        page.wait_for_url(f"**/compare/code?experiments={seeded.failed},{seeded.search}")
        page.go_back()
        page.get_by_role("button", name="Compare", exact=True).click()
        page.wait_for_url("**/compare?experiments=*")
        visit.wait_until_drawn()
        assert page.locator(".compare thead").first.inner_text().count("×") == 2  # noqa: RUF001
        page.get_by_label("Add a trial").fill(str(seeded.running_trial))
        page.get_by_role("button", name="Compare").click()
        page.wait_for_url("**/compare?trials=*")
        visit.wait_until_drawn()
        page.get_by_label("over").select_option("time")
        with page.expect_download() as download:
            page.get_by_role("button", name="Download report").click()
        report = download.value.path().read_text()
        assert "running time in hours" in report and report.count('<g class="line') == 3


def test_forms_are_accepted_from_a_real_browser(windows: Windows, served_seed: tuple[ServedSite, Seeded]) -> None:
    site, seeded = served_seed
    with windows.visit() as visit:
        page = visit.open(f"/experiments/{seeded.queued}")
        page.get_by_role("textbox", name="Notes").fill(f"a note with {HOSTILE}")
        page.get_by_role("button", name="Save notes").click()
        page.wait_for_url(f"**/experiments/{seeded.queued}")
        page.get_by_label("Labels, separated by commas").fill("one, two")
        page.get_by_role("button", name="Save labels").click()
        page.wait_for_url(f"**/experiments/{seeded.queued}")
        assert page.get_by_role("textbox", name="Notes").input_value() == f"a note with {HOSTILE}"
        record = site.store.experiment(seeded.queued)
        assert (list(record.labels), record.notes) == (["one", "two"], f"a note with {HOSTILE}")


def test_a_dialog_carries_an_action_out(windows: Windows, served_seed: tuple[ServedSite, Seeded]) -> None:
    site, seeded = served_seed
    with windows.visit() as visit:
        page = visit.open(f"/experiments/{seeded.failed}")
        page.get_by_role("link", name="Archive").click()
        page.get_by_role("dialog").get_by_role("button", name="Archive").click()
        page.get_by_role("link", name="Unarchive").wait_for()
        assert site.store.experiment(seeded.failed).archived
        page.wait_for_load_state()  # before its scripts run, the link opens a page instead of the dialog
        page.get_by_role("link", name="Unarchive").click()
        page.get_by_role("dialog").get_by_role("button", name="Unarchive").click()
        page.get_by_role("link", name="Archive", exact=True).wait_for()
        assert not site.store.experiment(seeded.failed).archived


def test_updates_lose_nothing_that_the_reader_types_or_selects(
    windows: Windows, served_seed: tuple[ServedSite, Seeded]
) -> None:
    site, _ = served_seed
    made = site.store.create_experiment(config={"name": "typing"}).id
    with windows.visit() as visit:
        page = visit.open(f"/experiments/{made}")
        visit.wait_until_live()
        note = page.get_by_role("textbox", name="Notes")
        note.fill("half a sen")
        site.store.create_trial(made, hparams={}, seed=0)
        page.get_by_text("There is more on this page.").wait_for()
        assert note.input_value() == "half a sen"
        note.fill("")
        note.blur()
        page.get_by_role("heading", name="Trials").wait_for()
        boxes = page.locator("#trials tbody input")
        boxes.first.check()
        trial = site.store.create_trial(made, hparams={}, seed=0).id
        page.locator("#facts", has_text="2").wait_for()
        assert boxes.count() == 1
        assert boxes.first.is_checked()
        boxes.first.uncheck()
        boxes.first.blur()
        page.locator(f"#trials tr[data-trial='{trial}']").wait_for()
    site.store.delete_experiment(made)


def test_a_checkpoint_that_replaces_another_is_completed(
    windows: Windows, served_seed: tuple[ServedSite, Seeded]
) -> None:
    """Retention deletes the older one at once, so that their number stays the same."""
    site, _ = served_seed
    store = site.store
    made = store.create_experiment(config={"name": "saving"}).id
    trial = store.create_trial(made, hparams={}, seed=0).id
    store.start_run(trial, allocation_id="a")
    store.set_trial_state(trial, State.ACTIVE)
    complete: dict[str, Any] = {"run_id": 1, "steps_completed": 1, "resources": {}, "metadata": {}}
    store.begin_checkpoint("older", trial_id=trial, run_id=1, storage={})
    store.complete_checkpoint("older", **complete)
    store.begin_checkpoint("newer", trial_id=trial, run_id=1, storage={})
    with windows.visit() as visit:
        page = visit.open(f"/trials/{trial}")
        visit.wait_until_live()
        page.locator("#checkpoints tr", has_text="newer").get_by_text("being saved").wait_for()
        store.complete_checkpoint("newer", **complete)
        store.delete_checkpoint("older")
        page.locator("#checkpoints tr", has_text="newer").get_by_text("completed").wait_for()
        assert page.locator("#checkpoints tr", has_text="older").count() == 0
    store.delete_experiment(made)


def test_the_head_of_an_experiment_follows_its_state(windows: Windows, served_seed: tuple[ServedSite, Seeded]) -> None:
    site, _ = served_seed
    made = site.store.create_experiment(config={"name": "failing"}).id
    site.store.acquire_lease(made, "runner", seconds=600)
    site.store.set_experiment_state(made, State.ACTIVE)
    with windows.visit() as visit:
        page = visit.open(f"/experiments/{made}/code")
        page.get_by_role("link", name="Pause").wait_for()
        visit.wait_until_live()
        site.store.set_experiment_state(made, State.ERROR, error="ValueError: the loss is not finite")
        page.get_by_role("alert").get_by_text("ValueError: the loss is not finite").wait_for()
        assert page.get_by_role("link", name="Pause").count() == 0
    site.store.release_lease(made, "runner")
    site.store.delete_experiment(made)


def test_people_log_in_see_what_their_role_permits_and_log_out(browser: Browser, store: TrackingStore) -> None:
    with served(store, account_access) as site:
        site.add_user("vic", Role.VIEWER)
        page = browser.new_page()
        page.goto(f"{site.site.url}/experiments")
        page.get_by_label("User").fill("vic")
        page.get_by_label("Password").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("alert").wait_for()
        page.get_by_label("User").fill("vic")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.get_by_text("No experiments yet").wait_for()
        assert page.get_by_role("link", name="Audit").count() == 0
        page.get_by_role("link", name="vic").click()
        page.get_by_role("cell", name="browser session").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.get_by_role("button", name="Log out").click()
        page.get_by_label("Password").wait_for()
        page.context.close()
