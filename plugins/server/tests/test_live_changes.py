"""Live updates: one poller, differences only, cursors, slow pages, and an end with the last page."""

from __future__ import annotations

import asyncio
import http.client
import json
import math
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from det_server import _live_changes
from det_server._live_changes import Event, LiveChanges, Subscription, Viewer
from det_server._live_rows import LiveRows, Topics

from det_core.errors import StoreBusy
from det_core.interfaces.account_records import Role
from det_core.interfaces.records import LogLine, MetricsReport, Run, State
from det_core.interfaces.tracking import TrackingStore

from .serving import LIMIT, ServedSite, wait_for

ANN = Viewer("ann", lambda: True)
CONFIG = {"name": "x", "searcher": {"metric": "loss", "smaller_is_better": True}}


class CountedChanges(LiveChanges):
    """Live changes that count their polls."""

    polls = 0

    async def _publish_changes(self) -> None:
        await super()._publish_changes()
        self.polls += 1

    async def next_poll(self, *, idle: bool = True) -> None:
        """Wait for the end of the next poll, and until nothing is being read."""
        before = self.polls
        while self.polls == before or (idle and self._jobs):
            await asyncio.sleep(0.01)


class Reader:
    """Page that reads its events."""

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        self._events = events
        self._others: list[tuple[str, Any]] = []
        self.cursor = ""

    async def next(self, name: str) -> Any:
        """Return the data of the next event of that name. Others wait for their turn."""
        for number, (other, data) in enumerate(self._others):
            if other == name:
                del self._others[number]
                return data
        while True:
            event = (await asyncio.wait_for(anext(self._events), LIMIT)).decode()
            fields = dict(line.split(": ", 1) for line in event.splitlines() if ": " in line)
            self.cursor = fields.get("id", self.cursor)
            if fields.get("event") == name:
                return json.loads(fields["data"])
            if "event" in fields:
                self._others.append((fields["event"], json.loads(fields["data"])))

    async def close(self) -> None:
        await self._events.aclose()  # type: ignore[attr-defined]


def new_run(store: TrackingStore) -> tuple[int, Run]:
    experiment = store.create_experiment(config=CONFIG).id
    store.set_experiment_state(experiment, State.ACTIVE)
    return experiment, store.start_run(store.create_trial(experiment, hparams={}, seed=1).id, allocation_id="a")


def report(store: TrackingStore, run: Run, step: int, loss: float) -> None:
    metrics = MetricsReport(
        trial_id=run.trial_id, run_id=run.run_id, group="validation", steps_completed=step, metrics={"loss": loss}
    )
    store.report_metrics([metrics])


@pytest.fixture(autouse=True)
def _frequent_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _live_changes.POLL_SECONDS <= 1, "a report is seen within two seconds"
    monkeypatch.setattr(_live_changes, "POLL_SECONDS", 0.05)


def reading(store: TrackingStore, body: Callable[[CountedChanges], Awaitable[None]]) -> CountedChanges:
    """Run ``body`` with live changes, and check that nothing is left of them."""

    async def whole() -> CountedChanges:
        changes = CountedChanges(store)
        await body(changes)
        deadline = time.monotonic() + LIMIT
        while changes.is_polling:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        assert changes.open_pages == 0
        await changes.close()
        return changes

    return asyncio.run(asyncio.wait_for(whole(), 3 * LIMIT))  # heartbeats end no wait for an event


def test_nothing_is_read_before_a_page_opens_and_after_the_last_has_gone(store: TrackingStore) -> None:
    _, run = new_run(store)

    async def body(changes: CountedChanges) -> None:
        assert not changes.is_polling
        reader = Reader(changes.events(ANN, Topics(trials=frozenset({run.trial_id}))))
        await reader.next("rows")
        assert changes.is_polling
        await reader.close()

    reading(store, body)


def test_a_report_arrives_with_the_next_poll_and_only_what_changed_is_sent(store: TrackingStore) -> None:
    experiment, run = new_run(store)
    topics = Topics(experiments=frozenset({experiment}), trials=frozenset({run.trial_id}))

    async def body(changes: CountedChanges) -> None:
        reader = Reader(changes.events(ANN, topics))
        first = await reader.next("rows")
        assert first[f"trial/{run.trial_id}"]["best"] == "–"  # noqa: RUF001
        assert first[f"experiment/{experiment}"]["state"] == "ACTIVE"
        await changes.next_poll()
        report(store, run, 10, 0.25)
        rows = await reader.next("rows")
        assert rows[f"trial/{run.trial_id}"] == {"batches": "10", "best": "0.2500", "best_at": "10"}
        assert rows[f"experiment/{experiment}"] == {"best": "0.2500"}
        assert await reader.next("metrics") == [run.trial_id]
        store.set_trial_state(run.trial_id, State.COMPLETED)
        rows = await reader.next("rows")
        assert rows[f"trial/{run.trial_id}"]["state_word"] == "completed"
        assert "best" not in rows[f"trial/{run.trial_id}"]
        await reader.close()

    reading(store, body)


def test_failures_and_divergences_arrive_without_a_reload(store: TrackingStore) -> None:
    experiment, run = new_run(store)
    topics = Topics(experiments=frozenset({experiment}), trials=frozenset({run.trial_id}))

    async def body(changes: CountedChanges) -> None:
        reader = Reader(changes.events(ANN, topics))
        await reader.next("rows")
        await changes.next_poll()
        report(store, run, 1, 0.5)
        await reader.next("rows")
        report(store, run, 2, math.nan)
        rows = await reader.next("rows")
        assert rows[f"trial/{run.trial_id}"] == {"batches": "2", "diverged": "NaN since batch 2"}
        assert rows[f"experiment/{experiment}"] == {"best_diverged": "NaN since batch 2"}
        store.set_trial_state(run.trial_id, State.ERROR)
        row = (await reader.next("rows"))[f"experiment/{experiment}"]
        assert row == {"failed": "1 of 1 failed", "best_failed": "failed trial"}
        store.set_experiment_state(experiment, State.ERROR, error="trial 1 failed")
        assert (await reader.next("rows"))[f"experiment/{experiment}"]["error"] == "trial 1 failed"
        await reader.close()

    reading(store, body)


def test_pages_hear_only_of_their_own_topics(store: TrackingStore) -> None:
    (_, run), (_, other) = new_run(store), new_run(store)

    async def body(changes: CountedChanges) -> None:
        mine, theirs = (Reader(changes.events(ANN, Topics(trials=frozenset({one.trial_id})))) for one in (run, other))
        await mine.next("rows")
        await theirs.next("rows")
        await changes.next_poll()
        report(store, other, 1, 1.0)
        report(store, run, 1, 1.0)
        assert await mine.next("metrics") == [run.trial_id]
        assert await theirs.next("metrics") == [other.trial_id]
        await mine.close()
        await theirs.close()

    reading(store, body)


def test_a_page_that_connects_again_hears_what_it_missed(store: TrackingStore) -> None:
    _, run = new_run(store)
    topics = Topics(trials=frozenset({run.trial_id}))

    async def body(changes: CountedChanges) -> None:
        reader = Reader(changes.events(ANN, topics))
        await reader.next("rows")
        await changes.next_poll()
        report(store, run, 1, 1.0)
        await reader.next("metrics")
        await reader.close()
        line = LogLine(
            trial_id=run.trial_id, run_id=1, rank=0, stdtype="stdout", log="missed", time=datetime.now(timezone.utc)
        )
        store.add_logs([line])
        again = Reader(changes.events(ANN, topics, reader.cursor))
        assert await again.next("logs") == [run.trial_id]
        await again.close()

    reading(store, body)


@pytest.mark.parametrize(
    "path", ["/experiments", "/experiments/1", "/experiments/1/search", "/experiments/1/code", "/trials/1"]
)
def test_a_page_carries_the_cursor_that_it_was_rendered_at(local: ServedSite, path: str) -> None:
    _, run = new_run(local.store)
    (cursor,) = re.findall(r'<body[^>]* data-cursor="([^"]+)">', local.owner.get(path).text)
    report(local.store, run, 1, 1.0)
    assert list(local.store.changes(cursor).metrics) == [run.trial_id]


@pytest.mark.parametrize("cursor", ["nonsense", "9.9.9.9", "-1", "1,2,3"])
def test_an_unknown_cursor_makes_the_page_reload(store: TrackingStore, cursor: str) -> None:
    _, run = new_run(store)

    async def body(changes: CountedChanges) -> None:
        reader = Reader(changes.events(ANN, Topics(trials=frozenset({run.trial_id})), cursor))
        assert await reader.next("reload") == {}
        await reader.close()

    reading(store, body)


def test_only_values_that_differ_are_sent() -> None:
    async def whole() -> list[Any]:
        page = Subscription(ANN, Topics())
        page.put_rows({"trial/1": {"best": "1", "batches": "2"}, "trial/2": {"best": "3"}})
        page.put_rows({"trial/1": {"best": "1", "batches": "2"}})
        page.put_rows({"trial/1": {"best": "0", "batches": "2"}, "trial/2": {"best": "3"}})
        page.put_rows({"trial/3": {}})
        return [page.queue.get_nowait().data for _ in range(page.queue.qsize())]

    assert asyncio.run(whole()) == [
        {"trial/1": {"best": "1", "batches": "2"}, "trial/2": {"best": "3"}},
        {"trial/1": {"best": "0"}},
    ]


def test_a_page_that_reloads_receives_its_rows_again() -> None:
    async def whole() -> None:
        page, rows = Subscription(ANN, Topics()), {"trial/1": {"best": "1"}}
        page.put_rows(rows)
        for number in range(99):
            page.put(Event("metrics", [number], str(number)))
        assert page.queue.qsize() == 100
        page.put(Event("metrics", [99], "99"))
        (event,) = [page.queue.get_nowait() for _ in range(page.queue.qsize())]
        assert event == Event("reload", {}, "99")
        page.put_rows(rows)
        assert page.queue.get_nowait() == Event("rows", rows)

    asyncio.run(whole())


def test_an_event_moves_the_cursor_if_it_has_one() -> None:
    assert Event("metrics", [1], "7").encode() == b"id: 7\nevent: metrics\ndata: [1]\n\n"
    assert Event("rows", {"a": "\n"}).encode() == b'event: rows\ndata: {"a": "\\n"}\n\n'
    with pytest.raises(ValueError, match="JSON"):
        Event("rows", math.nan).encode()


def test_a_new_experiment_is_announced_to_the_list(store: TrackingStore) -> None:
    async def body(changes: CountedChanges) -> None:
        reader = Reader(changes.events(ANN, Topics(newest=True)))
        assert await reader.next("rows") == {"experiments": {"newest": "0"}}
        made = store.create_experiment(config=CONFIG).id
        assert await reader.next("rows") == {"experiments": {"newest": str(made)}}
        await reader.close()

    reading(store, body)


def test_deleted_records_do_not_end_the_updates_of_others(store: TrackingStore) -> None:
    (gone, lost), (kept, run) = new_run(store), new_run(store)

    async def body(changes: CountedChanges) -> None:
        topics = Topics(experiments=frozenset({gone, kept}), trials=frozenset({lost.trial_id, run.trial_id}))
        reader = Reader(changes.events(ANN, topics))
        await reader.next("rows")
        store.delete_experiment(gone)
        await changes.next_poll()
        report(store, run, 7, 0.5)
        assert (await reader.next("rows"))[f"trial/{run.trial_id}"]["batches"] == "7"
        await reader.close()

    reading(store, body)


def test_idle_pages_receive_heartbeats(store: TrackingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_live_changes, "HEARTBEAT_SECONDS", 0.05)

    async def body(changes: CountedChanges) -> None:
        events = changes.events(ANN, Topics())
        assert await anext(events) == b"retry: 2000\n\n"
        assert await asyncio.wait_for(anext(events), LIMIT) == b": alive\n\n"
        await events.aclose()  # type: ignore[attr-defined]

    reading(store, body)


def test_the_number_of_pages_is_bounded(store: TrackingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_live_changes, "MAX_STREAMS", 3)
    monkeypatch.setattr(_live_changes, "MAX_STREAMS_PER_PERSON", 2)
    ann, vic = Viewer("ann", lambda: True), Viewer("vic", lambda: True)

    async def body(changes: CountedChanges) -> None:
        pages = [changes.events(ann, Topics()) for _ in range(2)]
        for page in pages:
            await anext(page)
        assert changes.refusal(ann) == "ann has 2 open pages"
        assert [event async for event in changes.events(ann, Topics())] == []
        assert changes.refusal(vic) == ""
        pages.append(changes.events(vic, Topics()))
        await anext(pages[-1])
        assert changes.refusal(vic) == "3 pages are open"
        for page in pages:
            await page.aclose()  # type: ignore[attr-defined]
        assert changes.refusal(ann) == ""

    reading(store, body)


def test_a_page_that_is_one_too_many_is_refused(local: ServedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_live_changes, "MAX_STREAMS", 0)
    answer = local.owner.get("/live?list=1")
    assert answer.status == 503
    assert "0 pages are open; close some" in answer.text


def test_the_stream_of_a_viewer_who_is_not_admitted_any_more_ends(store: TrackingStore) -> None:
    admitted = {"ann", "vic"}

    async def body(changes: CountedChanges) -> None:
        ann, vic = (
            Reader(changes.events(Viewer(name, lambda name=name: name in admitted), Topics(newest=True)))  # type: ignore[misc]
            for name in ("ann", "vic")
        )
        await ann.next("rows")
        await vic.next("rows")
        admitted.remove("ann")
        with pytest.raises(StopAsyncIteration):
            await ann.next("rows")
        store.create_experiment(config=CONFIG)
        await vic.next("rows")
        await vic.close()

    reading(store, body)


@pytest.mark.integration
@pytest.mark.parametrize("end", ["logout", "deactivate", "role"])
def test_streams_end_with_the_session_and_the_role(served_team: ServedSite, end: str) -> None:
    ann, changed = served_team.log_in("ann"), {"deactivate": {"active": False}, "role": {"role": Role.VIEWER}}
    with ann.stream("/live?list=1") as lines:
        assert next(line for line in lines if line == "event: rows")
        if end == "logout":
            ann.post("/logout")
        else:
            served_team.store.edit_user("ann", **changed[end])  # type: ignore[arg-type]
        assert "event: rows" not in list(lines)
    assert served_team.site.changes.open_pages == 0


def test_updates_continue_after_the_store_was_unavailable(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, run = new_run(store)

    async def body(changes: CountedChanges) -> None:
        reader = Reader(changes.events(ANN, Topics(trials=frozenset({run.trial_id}))))
        await reader.next("rows")
        await changes.next_poll()
        failed: list[str] = []

        def fail(after: str = "") -> Any:
            failed.append(after)
            raise StoreBusy("the database is locked")

        with monkeypatch.context() as patch:
            patch.setattr(type(store), "changes", lambda self, after="": fail(after))
            while not failed:
                await asyncio.sleep(0.05)
            report(store, run, 3, 0.5)
        assert await reader.next("metrics") == [run.trial_id]
        await reader.close()

    reading(store, body)


def test_slow_reads_for_one_person_delay_nobody_else(store: TrackingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_live_changes, "HEARTBEAT_SECONDS", 0.05)
    (_, slow), (_, run) = new_run(store), new_run(store)
    begun, may_end = list[Topics](), threading.Event()

    async def body(changes: CountedChanges) -> None:
        read = vars(changes)["_rows"].read

        def read_slowly(topics: Topics) -> Any:
            if slow.trial_id in topics.trials:
                begun.append(topics)
                assert may_end.wait(LIMIT)
            return read(topics)

        vars(changes)["_rows"] = SimpleNamespace(read=read_slowly)
        own = [Topics(trials=frozenset({slow.trial_id, run.trial_id + more})) for more in range(6)]
        vic = [Reader(changes.events(Viewer("vic", lambda: True), topics)) for topics in own]
        beginning = [asyncio.create_task(reader.next("metrics")) for reader in vic]
        ann = Reader(changes.events(ANN, Topics(trials=frozenset({run.trial_id}))))
        await ann.next("rows")
        while not begun:  # or the first page might miss the report
            await asyncio.sleep(0.01)
        await changes.next_poll(idle=False)
        report(store, run, 7, 0.5)
        assert (await ann.next("rows"))[f"trial/{run.trial_id}"]["batches"] == "7"
        assert await ann.next("metrics") == await beginning[0] == [run.trial_id]
        assert len(begun) == 1
        may_end.set()
        assert f"trial/{slow.trial_id}" in await vic[0].next("rows")
        for task in beginning[1:]:
            task.cancel()
        await asyncio.gather(*beginning, return_exceptions=True)
        for reader in (*vic, ann):
            await reader.close()

    reading(store, body)


def test_pages_that_are_closed_at_once_have_no_reads_that_go_on(store: TrackingStore) -> None:
    """Otherwise a viewer who connects again and again would have any number of them at the same time."""
    present, most, may_end = list[Topics](), 0, threading.Event()

    def read(topics: Topics) -> Any:
        nonlocal most
        present.append(topics)
        most = max(most, len(present))
        assert may_end.wait(LIMIT)
        present.remove(topics)
        return {}

    async def body(changes: CountedChanges) -> None:
        vars(changes)["_rows"] = SimpleNamespace(read=read)
        for number in range(50):
            stream = changes.events(ANN, Topics(trials=frozenset({number})), "unknown" if number % 2 else "")
            await anext(stream)
            waiting = asyncio.create_task(anext(stream))  # type: ignore[arg-type]
            await asyncio.sleep(0.002)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await stream.aclose()  # type: ignore[attr-defined]
        while not present:
            await asyncio.sleep(0.01)
        may_end.set()

    changes = reading(store, body)
    assert most == 1
    assert vars(changes)["_jobs"] == {}


def test_a_page_keeps_its_cursor_until_it_has_what_it_missed(store: TrackingStore) -> None:
    """Otherwise one whose connection ends before would never hear of it."""
    _, run = new_run(store)
    before = store.changes().cursor
    report(store, run, 1, 1.0)
    may_end = threading.Event()

    async def body(changes: CountedChanges) -> None:
        vars(changes)["_rows"] = SimpleNamespace(read=lambda topics: may_end.wait(LIMIT) and {})
        reader = Reader(changes.events(ANN, Topics(trials=frozenset({run.trial_id})), before))
        first = asyncio.create_task(reader.next("metrics"))
        await changes.next_poll(idle=False)
        report(store, run, 2, 1.0)
        assert await first == [run.trial_id]
        assert reader.cursor == ""
        may_end.set()
        assert await reader.next("metrics") == [run.trial_id]
        assert reader.cursor
        await reader.close()

    reading(store, body)


@pytest.mark.integration
def test_people_who_look_at_the_same_page_share_reads(store: TrackingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_live_changes, "POLL_SECONDS", 0.5)
    _, run = new_run(store)
    topics, read = Topics(trials=frozenset({run.trial_id})), list[Topics]()

    async def body(changes: CountedChanges) -> None:
        rows = vars(changes)["_rows"]
        vars(changes)["_rows"] = SimpleNamespace(read=lambda topics: read.append(topics) or rows.read(topics))
        readers = [Reader(changes.events(Viewer(str(name), lambda: True), topics)) for name in range(20)]
        for reader in readers:
            await reader.next("rows")
        read.clear()
        for _ in range(4):
            await changes.next_poll()
        assert 0 < len(read) < 4 * len(readers) / 2
        for reader in readers:
            await reader.close()

    reading(store, body)


def test_trials_are_read_by_experiment(store: TrackingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking each of many experiments for all trials would take minutes for the pages of a single viewer."""
    (one, run), (other, following) = new_run(store), new_run(store)
    asked, trial_results = list[Any](), store.trial_results

    def ask(experiment_id: int, *, trial_ids: Any, brief: bool) -> Any:
        asked.append((experiment_id, trial_ids))
        return trial_results(experiment_id, trial_ids=trial_ids, brief=brief)

    monkeypatch.setattr(store, "trial_results", ask)
    trials = [run.trial_id, following.trial_id]
    assert LiveRows(store).read(Topics(trials=frozenset(trials))).keys() == {f"trial/{each}" for each in trials}
    assert sorted(asked) == [(one, [run.trial_id]), (other, [following.trial_id])]


def test_a_browser_that_goes_away_ends_its_stream(served_local: ServedSite) -> None:
    _, run = new_run(served_local.store)
    connection = http.client.HTTPConnection(*served_local.client.address, timeout=LIMIT)
    connection.request("GET", f"/live?trials={run.trial_id}", headers=served_local.owner.headers)
    response = connection.getresponse()
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-store"
    assert response.readline() == b"retry: 2000\n"
    assert served_local.site.changes.open_pages == 1
    response.close()
    connection.close()
    wait_for(lambda: served_local.site.changes.open_pages == 0, LIMIT)


@pytest.mark.parametrize("where", ["header", "query"])
def test_a_browser_resumes_from_its_cursor(served_local: ServedSite, where: str) -> None:
    _, run = new_run(served_local.store)
    cursor = served_local.store.changes().cursor
    report(served_local.store, run, 1, 1.0)
    client = served_local.owner
    path = f"/live?trials={run.trial_id}" + (f"&after={cursor}" if where == "query" else "")
    headers = client.headers | ({"Last-Event-ID": cursor} if where == "header" else {})
    connection = http.client.HTTPConnection(*client.address, timeout=LIMIT)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    lines = iter(response.readline, b"")
    assert next(line for line in lines if line == b"event: metrics\n")
    assert next(lines) == f"data: [{run.trial_id}]\n".encode()
    response.close()
    connection.close()
