"""Curves that open pages ask for again and again, read in full once a minute and extended in between."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from det_server._downsampling import extreme_positions

if TYPE_CHECKING:
    from det_core.interfaces.tracking import TrackingStore

FRESH_SECONDS = 60.0
"""Number of seconds after which a curve is read in full again, so that it has reports of earlier steps, too."""
_CURVES = 400
"""Number of curves that are kept, those that were asked for last."""

Points = Sequence[tuple[int, float]]
"""Pairs of step and value."""


class _Series(NamedTuple):
    metric: str
    group: str
    points: int


@dataclass(frozen=True)
class _Entry:
    run_id: int
    read_at: float
    points: Points


class CurveCache:
    """Reader of downsampled curves with their extremes, which scans the reports of a trial once a minute at most.

    Args:
        store: the tracking store.
        clock: function that returns the time in seconds.
    """

    def __init__(self, store: TrackingStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._entries: OrderedDict[tuple[int, _Series], _Entry] = OrderedDict()
        self._lock = threading.Lock()
        self._reading = WeakValueDictionary[tuple[object, ...], threading.Lock]()
        """Locks by what is asked for. A slow curve delays no other one."""

    def read(self, trial_ids: Sequence[int], metric: str, *, group: str, points: int) -> dict[int, Points]:
        """Return the curve of a metric for each trial that exists, with at most four times ``points`` values.

        Values may be NaN or infinite.

        Args:
            trial_ids: the trials, in the order of the result.
            metric: name of the metric.
            group: group of the metric.
            points: number of intervals of each of which the extremes are kept, at least 1.
        """
        series = _Series(metric, group, points)
        with self._lock:
            reading = self._reading.setdefault((*trial_ids, series), threading.Lock())
        with reading:  # pages that ask for the same at the same time wait, so that it is read once
            runs = {trial.id: trial.run_id for trial in self._store.trials_by_id(trial_ids, brief=True)}
            known = self._known(series, runs)
            now = self._clock()
            if all(entry.read_at > now - FRESH_SECONDS for entry in known.values()):
                return self._extend(series, runs, known)
            # While this call reads all of them in full, the others extend what is there.
            self._keep(series, {trial_id: replace(entry, read_at=now) for trial_id, entry in known.items()})
        return self._extend(series, runs, {})

    def _known(self, series: _Series, runs: Mapping[int, int]) -> dict[int, _Entry]:
        """Return the entries of the trials' present runs."""
        with self._lock:
            entries = {trial_id: self._entries.get((trial_id, series)) for trial_id in runs}
        return {trial_id: entry for trial_id, entry in entries.items() if entry and entry.run_id == runs[trial_id]}

    def _extend(self, series: _Series, runs: Mapping[int, int], known: Mapping[int, _Entry]) -> dict[int, Points]:
        """Read the points after those of the known entries and all points of the others, keep and return them."""
        metric, group, points = series
        read = partial(self._store.curves, metric=metric, group=group, points=points, extremes=True, non_finite=True)
        unknown = [trial_id for trial_id in runs if trial_id not in known]
        now = self._clock()
        entries = {trial_id: _Entry(runs[trial_id], now, curve) for trial_id, curve in read(unknown).items()}
        if known:
            last = {trial_id: entry.points[-1][0] for trial_id, entry in known.items()}
            newer = read(list(last), after=min(last.values()))
            for trial_id, entry in known.items():
                added = [point for point in newer[trial_id] if point[0] > last[trial_id]]
                entries[trial_id] = replace(entry, points=_thinned([*entry.points, *added], points))
        self._keep(series, {trial_id: entry for trial_id, entry in entries.items() if entry.points})
        return {trial_id: entries[trial_id].points for trial_id in runs}

    def _keep(self, series: _Series, entries: Mapping[int, _Entry]) -> None:
        with self._lock:
            for trial_id, entry in entries.items():
                self._entries[trial_id, series] = entry
                self._entries.move_to_end((trial_id, series))
            while len(self._entries) > _CURVES:
                self._entries.popitem(last=False)


def _thinned(curve: Points, points: int) -> Points:
    """Return a curve with at most four times as many values as ``points``, and its extremes."""
    if len(curve) <= 4 * points:
        return curve
    return [curve[one] for one in extreme_positions([value for _, value in curve], points)]
