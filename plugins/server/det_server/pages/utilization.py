"""Curves of how much of its hosts and GPUs a trial used."""

from __future__ import annotations

import sys
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from det_core.interfaces.records import SystemMetrics
from det_core.text import flatten_mapping
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
_MOST_CHARTS, _LONGEST_NAME = 100, 200
"""Maximum number of charts of a group, and of characters of their names."""
_SAMPLES_AT_ONCE = 200
"""Number of samples that are in memory at the same time."""
_INTERVALS = 300
"""Number of intervals of a curve, of each of which the least and the greatest value are drawn."""
_MOST_CURVES = 100
"""Maximum number of hosts and GPUs of a chart."""


def utilization_charts(store: TrackingStore, trial_id: int) -> dict[str, list[tuple[str, str]]]:
    """Return the titles of the charts of each kind of resource, with the URLs of their curves."""
    found: dict[str, list[tuple[str, str]]] = {}
    for group, heading in _GROUPS.items():
        samples = store.system_metrics(trial_id, group=group, limit=_SAMPLES_WITH_NAMES)
        names = dict.fromkeys(
            name for sample in samples for _, name, _ in _values(sample) if len(name) <= _LONGEST_NAME
        )
        charts = [
            (_TITLES.get(name, (name, 1.0))[0], f"/data/trials/{trial_id}/usage{query_string(query)}")
            for name in islice(names, _MOST_CHARTS)
            for query in [{"group": group, "name": name}]
        ]
        if charts:
            found[heading] = charts
    return found


def send_utilization(request: Request) -> Response:
    """Return the curves of one system metric as JSON, a curve per host or GPU over time.

    A query with ``after`` receives the values of later samples only, all of them unless they are many.
    """
    trial, store, query = trial_of(request), store_of(request), request.query_params
    group, wanted = query.get("group", ""), query.get("name", "")
    after = parse_number(query.get("after", ""), default=0, most=2**62)
    last, factor = after, _TITLES.get(wanted, ("", 1.0))[1]
    curves: dict[str, tuple[array[float], array[float]]] = defaultdict(lambda: (array("d"), array("d")))
    for sample in _samples(store, trial.id, group, after) if group in _GROUPS else ():
        last = sample.id
        for place, name, value in _values(sample):
            if name == wanted and (place in curves or len(curves) < _MOST_CURVES):
                times, values = curves[place]
                times.append(sample.time.timestamp())
                values.append(value * factor)
    series = [
        {"id": place, "label": place, "x": [times[one] for one in kept], "y": [values[one] for one in kept]}
        for place, (times, values) in sorted(curves.items())
        for is_short in [after and len(times) <= 2 * _INTERVALS]
        for kept in [range(len(times)) if is_short else extreme_positions(values, _INTERVALS)]
    ]
    return JsonResponse({"series": series, "last": last})


def _samples(store: TrackingStore, trial_id: int, group: str, after: int) -> Iterator[SystemMetrics]:
    while samples := store.system_metrics(trial_id, group=group, after=after, limit=_SAMPLES_AT_ONCE):
        yield from samples
        after = samples[-1].id


def _values(sample: SystemMetrics) -> Iterable[tuple[str, str, float]]:
    """Yield the place, such as host and GPU, the name and the value of each finite number in a sample."""
    by_host = {host: rest if isinstance(rest, Mapping) else {"value": rest} for host, rest in sample.metrics.items()}
    for path, value in flatten_mapping(by_host).items():
        place, _, name = path.rpartition(".")
        if _is_number(value) and abs(value) <= sys.float_info.max:
            yield clean_text(place), name, float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


ROUTES = [Route("/data/trials/{id:int}/usage", send_utilization)]
