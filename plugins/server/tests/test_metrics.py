"""The metrics for Prometheus."""

from __future__ import annotations

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from det_core.interfaces.records import State
from det_core.version import __version__

from .serving import ServedSite


def test_the_numbers_of_the_store_are_shown(local: ServedSite) -> None:
    store = local.store
    done, lost, running = (store.create_experiment(config={}).id for _ in range(3))
    store.create_trial(done, hparams={}, seed=0)
    store.set_experiment_state(done, State.COMPLETED)
    store.set_experiment_state(lost, State.ACTIVE)
    store.acquire_lease(running, "runner", seconds=60, state=State.ACTIVE)
    answer = local.commands.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    samples = {
        (sample.name, sample.labels.get("state")): sample.value
        for family in parse_text(answer.text)
        for sample in family.samples
    }
    assert samples["det_experiments", "completed"] == 1
    assert samples["det_experiments", "active"] == 2
    assert samples["det_experiments", "error"] == 0
    assert samples["det_trials", "queued"] == 1
    assert samples["det_experiments_without_runner", None] == 1
    assert samples["det_webhook_events_waiting", None] == 0
    assert samples["det_open_pages", None] == 0
    assert samples["process_resident_memory_bytes", None] > 1e6


def test_openmetrics_is_sent_to_those_who_ask_for_it(local: ServedSite) -> None:
    answer = local.commands.get("/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    odd = local.commands.get("/metrics", accept="application/openmetrics-text; version=abc")
    assert (odd.status, odd.headers["content-type"][:10]) == (200, "text/plain")
    families = {family.name: family for family in parse_openmetrics(answer.text)}
    assert families["det_build"].samples[0].labels == {"version": __version__}


def test_a_token_that_reads_is_enough_and_needed(team: ServedSite) -> None:
    for client in (team.program("vic"), team.log_in("vic")):
        assert client.get("/metrics").status == 200
    refused = team.client.get("/metrics")
    assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
