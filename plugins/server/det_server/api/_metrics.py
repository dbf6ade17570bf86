"""Endpoint with the numbers of the server and its tracking store for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response

from det_core.interfaces.records import State
from det_core.version import __version__
from det_server._site import Site, site_of

if TYPE_CHECKING:
    from prometheus_client import Metric


def show_metrics(request: Request) -> Response:
    """Answer with the metrics in the format that the client accepts."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_StoreCollector(site_of(request)))
    try:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
    except (TypeError, ValueError):  # a version that is no number
        encode, content_type = choose_encoder("")
    return Response(encode(registry), media_type=content_type)


@dataclass(frozen=True)
class _StoreCollector:
    """Collector of what the tracking store and the server hold now.

    Args:
        site: the parts of the server.
    """

    site: Site

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        counts = self.site.store.counts()
        yield InfoMetricFamily("det_build", "Release of det.", {"version": __version__})
        yield _by_state("det_experiments", "Experiments by state.", counts.experiments)
        yield _by_state("det_trials", "Trials by state.", counts.trials)
        yield GaugeMetricFamily(
            "det_experiments_without_runner",
            "Experiments that should run, but whose runner is lost.",
            counts.without_runner,
        )
        yield GaugeMetricFamily(
            "det_webhook_events_waiting", "Events that webhooks have not received yet.", counts.webhook_events
        )
        yield GaugeMetricFamily("det_open_pages", "Pages that receive live updates.", self.site.changes.open_pages)


def _by_state(name: str, text: str, counts: Mapping[State, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=["state"])
    for state in State:
        family.add_metric([state.value.lower()], counts.get(state, 0))
    return family
