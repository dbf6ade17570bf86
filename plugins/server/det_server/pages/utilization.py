"""Curves of how much of its hosts and GPUs a trial used."""

from __future__ import annotations

import sys
import time
from array import array
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from det_core.interfaces.records import SystemMetrics
from det_server._downsampling import extreme_positions
from det_server._json_response import JsonResponse
from det_server._rendering import clean_text, query_string
from det_server.pages._store_values import parse_number, store_of, trial_of

if TYPE_CHECKING:
    from det_core.interfaces.tracking import TrackingStore

_GROUPS = {"cpu": "CPU", "gpu": "GPU", "memory": "Memory", "network": "Network", "disk": "Disk"}
"""Groups of system metrics with their headings."""
_TITLES = {
    "cpu_util_simple": ("utilization, %", 1.0),
    "gpu_util": ("utilization, %", 1.0),
    "gpu_free_memory": ("free memory, GB", 1e-9),
    "memory_free": ("free memory, GB", 1e-9),
    "net_throughput_sent": ("sent, MB/s", 1e-6),
    "net_throughput_recv": ("received, MB/s", 1e-6),
    "disk_util": ("space used, %", 1.0),
    "disk_iops": ("operations per second", 1.0),
    "disk_throughput_read": ("read, MB/s", 1e-6),
    "disk_throughput_write": ("written, MB/s", 1e-6),
}
"""Names of system metrics with the titles of their charts, and the factors to the units there."""
_SAMPLES_WITH_NAMES = 50
"""Number of first samples of a group in which its names are looked for."""
_VALUES_WITH_NAMES = 10_000
"""Number of values in these samples after which no more are looked at. A sample of 16 GPUs has 32."""
_MOST_CHARTS, _LONGEST_NAME = 100, 200
"""Maximum number of charts of a group, and of characters of their names."""
_SAMPLES_AT_ONCE = 200
"""Number of samples that are in memory at the same time."""
_MOST_SECONDS = 1.0
"""Seconds after which an answer has no more samples."""
_INTERVALS = 300
"""Number of intervals of a curve, of each of which the least and the greatest value are drawn."""
_MOST_CURVES = 100
"""Maximum number of hosts and GPUs of a chart."""


def utilization_charts(store: TrackingStore, trial_id: int) -> dict[str, list[tuple[str, str]]]:
    """Return the titles of the charts of each kind of resource, with the URLs of their curves."""
    found: dict[str, list[tuple[str, str]]] = {}
    for group, heading in _GROUPS.items():
        charts = [
            (_TITLES.get(name, (name, 1.0))[0], f"/data/trials/{trial_id}/usage{query_string(query)}")
            for name in _names(store, trial_id, group)
            for query in [{"group": group, "name": name}]
        ]
        if charts:
            found[heading] = charts
    return found


def _names(store: TrackingStore, trial_id: int, group: str) -> list[str]:
    """Return the names of the values in the first samples of a group."""
    names, left = dict[str, None](), _VALUES_WITH_NAMES
    for sample, _ in islice(_samples(store, trial_id, group, _SAMPLES_WITH_NAMES // 2), _SAMPLES_WITH_NAMES):
        for _, values in _places(sample):
            left -= len(values)
            names |= {name: None for name, value in values.items() if len(name) <= _LONGEST_NAME and _is_finite(value)}
        if left < 0:
            break
    return list(names)[:_MOST_CHARTS]


def send_utilization(request: Request) -> Response:
    """Return the curves of one system metric as JSON, a curve per host or GPU over time.

    A query with ``after`` receives the values of later samples only, all of them unless they are many. If reading takes
    long, ``more`` is true, and a query with ``last`` as its ``after`` receives those that follow.
    """
    trial, store, query = trial_of(request), store_of(request), request.query_params
    group, wanted = query.get("group", ""), query.get("name", "")
    after = parse_number(query.get("after", ""), default=0, most=2**62)
    last, more, factor = after, False, _TITLES.get(wanted, ("", 1.0))[1]
    curves: dict[str, tuple[array[float], array[float]]] = {}
    samples = _samples(store, trial.id, group, _SAMPLES_AT_ONCE, after) if group in _GROUPS else ()
    for sample, more in samples:  # noqa: B007
        last = sample.id
        for place, value in _values(sample, wanted):
            if place in curves or len(curves) < _MOST_CURVES:
                times, values = curves.setdefault(place, (array("d"), array("d")))
                times.append(sample.time.timestamp())
                values.append(value * factor)
    series = [
        {"id": label, "label": label, "x": [times[one] for one in kept], "y": [values[one] for one in kept]}
        for place, (times, values) in sorted(curves.items())
        for label in [clean_text(place)]
        for is_short in [after and len(times) <= 2 * _INTERVALS]
        for kept in [range(len(times)) if is_short else extreme_positions(values, _INTERVALS)]
    ]
    return JsonResponse({"series": series, "last": last, "more": more})


def _samples(
    store: TrackingStore, trial_id: int, group: str, at_once: int, after: int = 0
) -> Iterator[tuple[SystemMetrics, bool]]:
    """Yield samples until a time limit, each with whether there may be more than are yielded."""
    deadline, more = time.monotonic() + _MOST_SECONDS, False
    while not more and (samples := store.system_metrics(trial_id, group=group, after=after, limit=at_once)):
        more = time.monotonic() > deadline
        yield from ((sample, more) for sample in samples)
        after = samples[-1].id


def _values(sample: SystemMetrics, name: str) -> Iterator[tuple[str, float]]:
    """Yield the places with a finite number of this name, and the numbers."""
    for place, values in _places(sample):
        value: Any = values.get(name)
        if _is_finite(value):
            yield place, float(value)


def _places(sample: SystemMetrics) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the hosts in a sample, and their GPUs and file systems, each with its values by name."""
    for host, values in sample.metrics.items():
        if isinstance(values, dict):
            yield host, values
            yield from ((f"{host}.{inner}", of) for inner, of in values.items() if isinstance(of, dict))
        else:
            yield host, {"value": values}


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


ROUTES = [Route("/data/trials/{id:int}/usage", send_utilization)]
