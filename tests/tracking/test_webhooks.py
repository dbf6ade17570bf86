"""Webhooks: the events that changes of state write, and their delivery to a real receiver."""

from __future__ import annotations

import http.client
import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from det_core.errors import DetError, ExperimentBusy, RecordExists, RecordNotFound, StaleRun
from det_core.interfaces.records import State
from det_core.interfaces.secrets import Secret
from det_core.interfaces.server_store import ServerStore
from det_core.interfaces.webhook_records import WEBHOOK_STATES, WebhookFormat, WebhookRecord, secret_block
from det_core.tracking import _webhooks, webhook_delivery, webhook_request
from det_core.tracking._column_types import utc_now
from det_core.tracking._schema import deliveries
from det_core.tracking.secret_files import store_secrets
from det_core.tracking.webhook_delivery import deliver_webhooks

from ..waiting import wait_for
from ..webhook_receiver import Receiver, receiving, sign

KEY = webhook_request.create_key()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


def add(store: ServerStore, name: str, url: str, **values: Any) -> WebhookRecord:
    key = Secret(values.pop("key", KEY))
    references = store_secrets(secret_block(name, Secret(url), key))
    defaults = {"format": WebhookFormat.DEFAULT, "states": WEBHOOK_STATES, "private": True}
    return store.create_webhook(name, **{**defaults, "url": references[url], "key": references[key], **values})


def deliver(store: ServerStore) -> None:
    """Deliver all that is due."""
    with deliver_webhooks(store, every=0.01):
        pass


def make_due(store: Any) -> None:
    """Let the time pass until the next attempts."""
    with store._database.write() as connection:
        connection.execute(update(deliveries).values(next_attempt=0.0))


def states_of(bodies: list[Any]) -> list[tuple[int, str]]:
    return [(one["event_data"]["experiment"]["id"], one["condition"]["state"]) for one in bodies]


def test_each_change_of_state_is_announced_once(store: ServerStore, receiver: Receiver) -> None:
    add(store, "all", receiver.url)
    add(store, "ends", receiver.url, states=[State.COMPLETED])
    one, other = (store.create_experiment(config={"name": name}, owner="ada").id for name in ("e", "f"))
    store.acquire_lease(one, "runner", seconds=60, state=State.ACTIVE)
    store.acquire_lease(one, "runner", seconds=60, state=State.ACTIVE)
    store.request_experiment_state(one, State.PAUSED)
    store.set_experiment_state(one, State.PAUSED, lease="runner")
    store.set_experiment_state(one, State.COMPLETED, lease="runner")
    store.continue_experiment(other, config={"name": "f"}, original_config="", restart_search=False)
    store.acquire_lease(other, "runner", seconds=60, state=State.ACTIVE)
    store.request_experiment_state(other, State.STOPPING_KILLED)
    store.release_lease(other, "runner")
    assert [(hook.name, hook.waiting) for hook in store.webhooks()] == [("all", 6), ("ends", 1)]
    deliver(store)
    assert [hook.waiting for hook in store.webhooks()] == [0, 0]
    assert sorted(states_of(receiver.confirmed)) == sorted(
        [
            *((one, state) for state in ("ACTIVE", "PAUSED", "COMPLETED", "COMPLETED")),
            *((other, state) for state in ("PAUSED", "ACTIVE", "CANCELED")),
        ]
    )


def test_changes_that_fail_are_not_announced(store: ServerStore, receiver: Receiver) -> None:
    add(store, "all", receiver.url)
    experiment = store.create_experiment(config={})
    store.acquire_lease(experiment.id, "runner", seconds=60)
    with pytest.raises(StaleRun):
        store.set_experiment_state(experiment.id, State.COMPLETED, lease="another")
    with pytest.raises(ExperimentBusy):
        store.acquire_lease(experiment.id, "another", seconds=60, state=State.ACTIVE)
    assert store.webhooks()[0].waiting == 0


def test_requests_are_signed_and_named_as_those_of_determined(store: ServerStore, receiver: Receiver) -> None:
    add(store, "pager", receiver.url)
    experiment = store.create_experiment(config={"name": "e", "resources": {"slots_per_trial": 2}}, owner="ada")
    store.set_experiment_state(experiment.id, State.ERROR, error="a secret path")
    deliver(store)
    ((headers, body),) = receiver.requests
    assert headers["webhook-id"] == body["event_id"]
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
    assert headers["webhook-signature"] == sign(KEY, headers, json.dumps(body).encode())
    assert (body["event_type"], body["condition"]) == ("EXPERIMENT_STATE_CHANGE", {"state": "ERROR"})
    described = body["event_data"]["experiment"]
    assert described.pop("duration") >= 0
    assert described == {
        **{"id": experiment.id, "state": "ERROR", "name": "e", "owner": "ada"},
        **{"slots_per_trial": 2, "workspace": "", "project": ""},
    }


@pytest.mark.parametrize("resources", [[], ["x"], "x", 1, {"slots_per_trial": ["x"]}])
def test_configs_of_scripts_may_be_anything(store: ServerStore, receiver: Receiver, resources: Any) -> None:
    add(store, "all", receiver.url)
    experiment = store.create_experiment(config={"resources": resources, "workspace": [1], "project": {}})
    store.set_experiment_state(experiment.id, State.COMPLETED)
    deliver(store)
    assert receiver.confirmed[0]["event_data"]["experiment"]["slots_per_trial"] == 1


def test_messages_for_slack_are_escaped(store: ServerStore, receiver: Receiver) -> None:
    add(store, "team", receiver.url, format=WebhookFormat.SLACK)
    experiment = store.create_experiment(config={"name": "<!channel> & co"})
    store.set_experiment_state(experiment.id, State.COMPLETED)
    deliver(store)
    ((_, body),) = receiver.requests
    (text,) = body.values()
    assert text.startswith(f"Experiment {experiment.id} &lt;!channel&gt; &amp; co: completed after ")
    assert list(body) == ["text"]


def test_an_event_is_repeated_with_its_id_until_it_is_confirmed(store: ServerStore, receiver: Receiver) -> None:
    add(store, "pager", receiver.url)
    add(store, "nobody", "http://127.0.0.1:1/hook")
    receiver.answers = [503, 302]
    experiment = store.create_experiment(config={})
    for state in (State.ACTIVE, State.COMPLETED):
        store.set_experiment_state(experiment.id, state)
    deliver(store)
    deliver(store)  # nothing is due
    nobody, pager = store.webhooks()
    assert (pager.waiting, pager.error) == (2, "127.0.0.1 answered 503 Service Unavailable")
    assert "refused" in nobody.error
    make_due(store)
    deliver(store)
    assert store.webhooks()[1].error == "127.0.0.1 answered 302 Found"
    make_due(store)
    deliver(store)
    assert [(hook.waiting, bool(hook.error)) for hook in store.webhooks()] == [(2, True), (0, False)]
    assert states_of(receiver.confirmed) == [(experiment.id, "ACTIVE"), (experiment.id, "COMPLETED")]
    assert len({headers["webhook-id"] for headers, _ in receiver.requests}) == 2


def test_events_of_a_webhook_keep_their_order(store: ServerStore, receiver: Receiver) -> None:
    hook = add(store, "pager", receiver.url)
    experiment = store.create_experiment(config={})
    store.set_experiment_state(experiment.id, State.ACTIVE)
    on_its_way = store.claim_delivery([hook.id])
    store.set_experiment_state(experiment.id, State.COMPLETED)
    assert on_its_way is not None
    assert store.claim_delivery([hook.id]) is None
    store.postpone_delivery(on_its_way, seconds=60, error="bad\0text")
    assert store.claim_delivery([hook.id]) is None
    assert store.webhooks()[0].error == "bad\ufffdtext"
    make_due(store)
    deliver(store)
    assert states_of(receiver.confirmed) == [(experiment.id, "ACTIVE"), (experiment.id, "COMPLETED")]


def test_a_slow_receiver_delays_no_other_one(store: ServerStore, receiver: Receiver) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        add(store, "a-slow", f"http://127.0.0.1:{silent.getsockname()[1]}/")
        add(store, "pager", receiver.url)
        store.set_experiment_state(store.create_experiment(config={}).id, State.COMPLETED)
        with deliver_webhooks(store):
            peer, _ = silent.accept()
            wait_for(lambda: receiver.confirmed)
            assert store.webhooks()[0].error == ""  # its first attempt has not ended
            peer.close()


def test_events_are_given_up_after_the_receiver_was_away_for_three_days(
    store: ServerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store, "pager", "http://127.0.0.1:1/hook")
    experiment = store.create_experiment(config={})
    for state in (State.ACTIVE, State.COMPLETED):
        store.set_experiment_state(experiment.id, state)
    waiting = []
    for day in (4, 5, 8, 8):  # nobody delivers during the first days
        monkeypatch.setattr(webhook_delivery, "utc_now", lambda day=day: utc_now() + timedelta(days=day))
        monkeypatch.setattr(_webhooks, "utc_now", webhook_delivery.utc_now)
        make_due(store)
        deliver(store)
        waiting.append(store.webhooks()[0].waiting)
    assert waiting == [2, 2, 0, 0]


def test_a_damaged_secret_holds_back_no_other_webhook(store: ServerStore, receiver: Receiver) -> None:
    add(store, "damaged", receiver.url, key="whsec_abcde")
    add(store, "pager", receiver.url)
    store.set_experiment_state(store.create_experiment(config={}).id, State.COMPLETED)
    deliver(store)
    damaged, pager = store.webhooks()
    assert (damaged.waiting, damaged.error[:6], pager.waiting) == (1, "Error:", 0)


def test_an_event_is_claimed_by_one_process_until_it_may_have_died(store: ServerStore, receiver: Receiver) -> None:
    hook = add(store, "pager", receiver.url)
    store.set_experiment_state(store.create_experiment(config={}).id, State.COMPLETED)
    claimed = store.claim_delivery([hook.id])
    assert claimed is not None
    assert (claimed.attempts, store.claim_delivery([hook.id])) == (1, None)
    make_due(store)
    again = store.claim_delivery([hook.id])
    assert again is not None
    assert (again.attempts, again.event) == (2, claimed.event)


def test_a_host_without_the_secrets_leaves_the_events_to_others(
    store: ServerStore, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    add(store, "pager", receiver.url)
    store.set_experiment_state(store.create_experiment(config={}).id, State.COMPLETED)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("DET_HOME", str(tmp_path / "elsewhere"))
        deliver(store)
    assert (receiver.requests, store.webhooks()[0].waiting) == ([], 1)
    deliver(store)
    assert len(receiver.confirmed) == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/",
        "http://localhost:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://[::ffff:10.0.0.1]/",
        "http://[::1]/",
        "http://0.0.0.0:{port}/",
        "http://2130706433:{port}/",
        "http://169.254.169.254/latest/meta-data",
        "http://192.168.0.1/",
        "http://[fd00::1]/",
        "http://[2002:7f00:1::]/",
        "http://224.0.0.1/",
        "http://[64:ff9b::127.0.0.1]/",
        "http://[64:ff9b::10.0.0.1]/",
        "http://[64:ff9b:1::8.8.8.8]/",
        "http://[::127.0.0.1]/",
        "http://[::ffff:0:10.0.0.1]/",
        "http://[2001:0:7f00:1::1]/",
        "http://[fec0::1]/",
        "http://[3fff::1]/",
        "http://[5f00::1]/",
        "http://[ff0e::1]/",
        "http://192.0.0.192/",
        "http://168.63.129.16/",
    ],
)
def test_private_addresses_are_refused_unless_allowed(receiver: Receiver, url: str) -> None:
    hook = _hook(url.format(port=receiver.server_port), private=False)
    with pytest.raises(DetError, match=r"has the private address .*--private"):
        webhook_request.send_event(hook, {"event_id": "1"})
    assert receiver.requests == []


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1"]
)
def test_public_addresses_are_allowed(address: str) -> None:
    assert webhook_request._is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org",
        "ftp://example.org/",
        "http://",
        "http://example.org:x/",
        "http://example.org:0/",
        "http://example.org/a b",
        "http://example.org/\nHost: x",
        "http://exämple.org/",
        "http://[::1",
    ],
)
def test_unusable_urls_are_refused(url: str) -> None:
    with pytest.raises(DetError, match="expected one such as https://example.org/hook"):
        webhook_request.check_url(url)


def test_passwords_in_urls_are_refused() -> None:
    with pytest.raises(DetError, match="cannot contain a user"):
        webhook_request.check_url("https://ada:secret@example.org/")


def test_certificates_are_verified(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving(certificate) as receiver:
        hook = _hook(f"{receiver.url}?token=a", private=True)
        with pytest.raises(DetError, match="127.0.0.1 could not be reached: .*certificate verify failed"):
            webhook_request.send_event(hook, {"event_id": "1"})
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        webhook_request.send_event(hook, {"event_id": "1"})
        assert [body for _, body in receiver.requests] == [{"event_id": "1"}]


def test_names_are_unique_and_states_are_those_of_experiments(store: ServerStore) -> None:
    add(store, "pager", "http://example.org/")
    with pytest.raises(RecordExists, match="'pager' already"):
        add(store, "pager", "http://example.org/")
    for name in ("", "a" * 65, "a b", "a\nb", "\x1b[2J"):
        with pytest.raises(ValueError, match="expected 1 to 64 letters"):
            add(store, name, "http://example.org/")
    with pytest.raises(ValueError, match="STOPPING_KILLED; expected some of ACTIVE, PAUSED"):
        add(store, "other", "http://example.org/", states=[State.STOPPING_KILLED])
    store.set_experiment_state(store.create_experiment(config={}).id, State.COMPLETED)
    store.delete_webhook("pager")
    assert store.webhooks() == []
    with pytest.raises(RecordNotFound, match="no webhook 'pager'"):
        store.delete_webhook("pager")


def _hook(url: str, **values: Any) -> WebhookRecord:
    now = datetime.now(timezone.utc)
    fields = {"id": 1, "name": "x", "states": [], "format": WebhookFormat.DEFAULT, "error": "", "waiting": 0}
    return WebhookRecord(**{**fields, "url": url, "key": KEY, "creation_time": now, **values})


def test_a_receiver_that_never_ends_its_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_request, "_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            peer, _ = listener.accept()
            with peer:
                try:
                    while True:
                        peer.sendall(b"x")
                        time.sleep(0.05)
                except OSError:
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        with pytest.raises(DetError, match="127.0.0.1"):
            port = listener.getsockname()[1]
            webhook_request.send_event(_hook(f"http://127.0.0.1:{port}/", private=True), {"event_id": "1"})
        thread.join()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ],
)
def test_a_truncated_answer_confirms_nothing(answer: bytes) -> None:
    with pytest.raises(DetError, match="could not be reached"):
        answer_once(answer)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ],
)
def test_a_whole_answer_confirms(answer: bytes) -> None:
    answer_once(answer)


def test_what_a_receiver_says_is_shown_without_its_secrets_and_control_characters() -> None:
    with pytest.raises(DetError, match=r"answered 500 \*{8} and \*{8}: bad$"):
        answer_once(b"HTTP/1.1 500 T0KEN/B0 and a b: \x1b[2Jbad\r\n\r\n", "T0KEN/B0?key=a%20b")


def answer_once(answer: bytes, target: str = "") -> None:
    """Send an event to a receiver that answers with these bytes and closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def receive() -> None:
            peer, _ = listener.accept()
            with peer:
                while not peer.recv(1 << 16).endswith(b"}"):
                    pass
                peer.sendall(answer)

        thread = threading.Thread(target=receive)
        thread.start()
        try:
            hook = _hook(f"http://127.0.0.1:{listener.getsockname()[1]}/{target}", private=True)
            webhook_request.send_event(hook, {"event_id": "1"})
        finally:
            thread.join()


@pytest.mark.integration
def test_dead_addresses_and_lookups_share_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_request, "_SECONDS", 0.5)
    hook, freed = _hook("http://example.org/", private=True), threading.Event()
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.socket() as first:
        first.connect(full.getsockname())  # further connections get no answer
        dead = (socket.AF_INET, socket.SOCK_STREAM, 6, "", full.getsockname())
        port = full.getsockname()[1]
        monkeypatch.setattr(webhook_request, "_CONNECTIONS", {"http": (http.client.HTTPConnection, port)})
        for lookup in (lambda *_, **__: [dead] * 20, lambda *_, **__: freed.wait(60)):
            monkeypatch.setattr(socket, "getaddrinfo", lookup)
            began = time.monotonic()
            with pytest.raises(DetError, match="example.org could not be reached"):
                webhook_request.send_event(hook, {"event_id": "1"})
            assert time.monotonic() - began < 9  # not half a second for each address
        freed.set()


_WRITER = """
import sys, itertools
from det_core.interfaces.records import State
from det_core.tracking import open_store
from det_core.tracking.webhook_delivery import deliver_webhooks

with open_store(sys.argv[1]) as store, deliver_webhooks(store, every=0.02):
    for number in itertools.count(1):
        store.set_experiment_state(store.create_experiment(config={}).id, State.COMPLETED)
        if number == 2:
            print("ready", flush=True)
"""


@pytest.mark.campaign
def test_nothing_is_lost_by_kills_and_an_outage(store: ServerStore, url: str, receiver: Receiver) -> None:
    add(store, "pager", receiver.url)
    chance = random.Random(0)
    for number in range(8):
        receiver.answers = [503] * 10_000 if 2 <= number < 5 else []
        with subprocess.Popen([sys.executable, "-c", _WRITER, url], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(chance.uniform(0.05, 0.5))  # the moment of the kill is what the campaign varies
            writer.send_signal(signal.SIGKILL)
        make_due(store)
    deliver(store)
    ended = {(one.id, "COMPLETED") for one in store.experiments(states=[State.COMPLETED])}
    assert set(states_of(receiver.confirmed)) == ended
    assert len(ended) >= 16
    assert store.webhooks()[0].waiting == 0
