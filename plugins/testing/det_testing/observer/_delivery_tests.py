"""Tests of what an observer passes on."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from det_core import events
from det_core.core.observer_thread import LINGER, ObserverThread
from det_core.interfaces.observer import Observer, received_events
from det_testing.observer._events import (
    CONTENTS,
    COUNTED,
    PLACES,
    report_metrics,
    send_client_events,
    send_runner_end,
    send_runner_start,
    send_unusual_events,
    send_worker_events,
)
from det_testing.observer._observer_suite import Arrived, ObserverSuite, OpenStream

_FLUSH_TIMEOUT = LINGER + 10.0
_REPORTS = 2_000
_SHOWN = 1_000
"""Number of characters of what arrived that a message shows."""


class ObserverDeliveryTests(ObserverSuite):
    """Tests that every event arrives once, in any process, and that nothing else does."""

    @pytest.mark.parametrize("place", PLACES)
    def test_every_event_is_accepted(
        self, open_stream: OpenStream, caplog: pytest.LogCaptureFixture, place: Any
    ) -> None:
        """An error costs the event, and with it usually others that were collected."""
        stream = open_stream(place)
        PLACES[place](stream)
        stream.close()
        assert self.complaints(caplog) == []

    def test_unusual_values_are_accepted(self, open_stream: OpenStream, caplog: pytest.LogCaptureFixture) -> None:
        """Metrics may be NaN, text or nested. An error message may contain any characters."""
        stream = open_stream()
        send_unusual_events(stream)
        stream.close()
        assert self.complaints(caplog) == []

    def test_each_event_arrives_once(
        self, open_stream: OpenStream, arrived: Arrived | None, target: type[Observer]
    ) -> None:
        """Runner, worker and commands have objects of their own, which share the destination at the same time.

        Everything arrives with a flush, so that a killed process does not lose it, and later flushes do not repeat it.
        """
        read = self._readable(arrived)
        known = {*received_events(target)} & {*CONTENTS}
        assert {*self.arriving} <= known, f"`arriving` names other events than {sorted(known)}"
        runner, worker, client = (open_stream(place) for place in ("runner", "worker", "client"))
        send_runner_start(runner)
        send_worker_events(worker)
        send_client_events(client)
        ends = {"trial_finished", "experiment_finished"}
        self._wait_for(read, {name: CONTENTS[name] for name in self.arriving if name not in ends})
        worker.close()
        client.close()
        send_runner_end(runner)
        self._wait_for(read, {name: CONTENTS[name] for name in self.arriving})
        runner.close()
        text = read()
        repeated = {name: COUNTED[name] for name in self.arriving if text.count(COUNTED[name]) > 1}
        assert repeated == {}, f"these texts arrived several times; what arrived begins {text[:_SHOWN]!r}"

    def test_a_flush_sends_everything_once(self, open_stream: OpenStream, arrived: Arrived | None) -> None:
        """If the process is killed, only what came after the last flush is lost. The next flush has only new events."""
        read = self._readable(arrived, "metrics_reported")
        stream = open_stream()
        for number in range(5):
            report_metrics(stream, 8200000.5 + number, number)
        report_metrics(stream, 8200005.5, 4, group="validation")  # at the step of another report
        expected = [f"820000{number}.5" for number in range(6)]
        self._wait_for(read, {f"report {number}": value for number, value in enumerate(expected)})
        stream.close()
        assert [value for value in expected if read().count(value) != 1] == [], "these reports arrived several times"

    def test_a_restarted_trial_continues(
        self, open_stream: OpenStream, arrived: Arrived | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The object of a killed worker is never closed. The next run has a new object and another ``run_id``."""
        read = self._readable(arrived, "metrics_reported")
        runner = open_stream("runner")
        for run_id in (1, 2):
            send_runner_start(runner, run_id)
            worker = open_stream(run_id=run_id)
            report_metrics(worker, 8300000.5 + run_id, run_id)
            self._wait_for(read, {f"report of run {run_id}": f"830000{run_id}.5"})
        send_runner_end(runner, 2)
        runner.close()
        assert [read().count(f"830000{run_id}.5") for run_id in (1, 2)] == [1, 1]
        assert self.complaints(caplog) == []

    def test_many_reports_keep_up(
        self, open_stream: OpenStream, arrived: Arrived | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A request per report is too slow. Collect reports, and send them in `Observer.flush`."""
        read = self._readable(arrived, "metrics_reported")
        stream = open_stream()
        for number in range(_REPORTS):
            report_metrics(stream, 8400000.5 + number, number)
        stream.close()
        assert self.complaints(caplog) == []
        text = read()
        missing = [value for number in range(_REPORTS) if (value := f"{8400000 + number}.5") not in text]
        assert missing == [], f"{len(missing)} reports did not arrive; what arrived begins {text[:_SHOWN]!r}"

    def test_no_secret_arrives(
        self,
        open_stream: OpenStream,
        options: Mapping[str, Any],
        arrived: Arrived | None,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Whoever can read the destination or the log does not learn the options that are secrets."""
        read = self._readable(arrived)
        if not self.secrets:
            pytest.skip("the attribute `secrets` is not set")
        for place, send in PLACES.items():
            stream = open_stream(place)
            send(stream)
            stream.close()
        shown = read() + caplog.text
        assert [name for name in self.secrets if str(options[name]) in shown] == [], "these options are visible"

    def test_events_are_left_unchanged(self, open_stream: OpenStream, monkeypatch: pytest.MonkeyPatch) -> None:
        """Other observers receive the same objects."""
        sent: list[tuple[events.Event, dict[str, Any]]] = []
        submit: Callable[[ObserverThread, events.Event], None] = ObserverThread.submit

        def remember(self: ObserverThread, event: events.Event) -> None:
            sent.append((event, copy.deepcopy(vars(event))))
            submit(self, event)

        monkeypatch.setattr(ObserverThread, "submit", remember)
        for place, send in PLACES.items():
            stream = open_stream(place)
            send(stream)
            stream.close()
        assert [event.name for event, before in sent if vars(event) != before] == []

    def test_an_unreachable_destination_is_harmless(
        self, open_stream: OpenStream, unreachable: Mapping[str, Any] | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        """An observer raises an error, which users see, before det abandons it at the end of the process."""
        if unreachable is None:
            pytest.skip("the fixture `unreachable` is not overridden")
        stream = open_stream("worker", options=unreachable)
        send_worker_events(stream)
        stream.close()
        complaints = self.complaints(caplog)
        assert complaints, "an error of the destination must be raised, so that det logs it"
        assert [text for text in complaints if "abandoned" in text] == []

    @staticmethod
    def _wait_for(read: Arrived, texts: Mapping[str, str]) -> None:
        """Wait until flushes have sent these texts, which are given by what contains them."""
        deadline = time.monotonic() + _FLUSH_TIMEOUT
        while missing := {name: text for name, text in texts.items() if text not in (found := read())}:
            if time.monotonic() > deadline:
                pytest.fail(f"not found within {_FLUSH_TIMEOUT:g} s: {missing}; what arrived begins {found[:_SHOWN]!r}")
            time.sleep(0.05)

    def _readable(self, arrived: Arrived | None, event: str = "") -> Arrived:
        if arrived is None:
            pytest.skip("the fixture `arrived` is not overridden")
        if event and event not in self.arriving:
            pytest.skip(f"{event} is not in the attribute `arriving`")
        return arrived
