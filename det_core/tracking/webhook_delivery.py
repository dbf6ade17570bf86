"""Delivery of events to webhooks, by threads of a server or of a runner."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from det_core.errors import DetError
from det_core.interfaces.server_store import ServerStore
from det_core.interfaces.webhook_records import secret_block
from det_core.tracking._column_types import utc_now
from det_core.tracking.secret_files import find_missing_secrets

if TYPE_CHECKING:
    from det_core.interfaces.tracking import TrackingStore
    from det_core.interfaces.webhook_records import Delivery

_log = logging.getLogger("det.webhooks")

_POLL_SECONDS = 5.0
_STOP_SECONDS = 10.0
"""Maximum time that the end of a process waits for the last deliveries. Another process makes those that are left."""
_FIRST_PAUSE = 5.0
"""Seconds until the second attempt. Each later pause is twice as long, up to `_LONGEST_PAUSE`."""
_LONGEST_PAUSE = 300.0
_GIVE_UP_AFTER = timedelta(days=3)
"""Age of an event after which a failed attempt is the last one, unless those before it had arrived."""


@contextmanager
def deliver_webhooks(store: TrackingStore, *, every: float = _POLL_SECONDS) -> Iterator[None]:
    """Deliver events to webhooks in a thread until the block ends, and try once more what is due then.

    Several processes may do this at once. Each event arrives at least once, and as a rule exactly once.

    Args:
        store: the tracking store. That of a server or a runner elsewhere delivers its events itself.
        every: seconds between two polls for events that are due.
    """
    if not isinstance(store, ServerStore):
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_deliver_until, args=(store, ended, every), name="det-webhooks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_STOP_SECONDS)


def _deliver_until(store: ServerStore, ended: threading.Event, every: float) -> None:
    threads: list[threading.Thread] = []
    last = False
    while True:
        threads = [thread for thread in threads if thread.is_alive()]
        try:
            _start_deliveries(store, threads)
        except Exception:  # noqa: BLE001  (the next attempt may succeed)
            _log.exception("events of webhooks could not be delivered")
        if last:
            break
        last = ended.wait(every)
    for thread in threads:
        thread.join()


def _start_deliveries(store: ServerStore, threads: list[threading.Thread]) -> None:
    """Deliver the events that are due, of the webhooks whose secrets are on this host.

    Each webhook gets a thread of its own, so that no receiver waits for a slow one.

    Args:
        store: the tracking store.
        threads: list to which the new threads are added.
    """
    waiting = [one for one in store.webhooks() if one.waiting]
    able = {one.id for one in waiting if not find_missing_secrets(secret_block(one.name, one.url, one.key))}
    while able and (delivery := store.claim_delivery(sorted(able))):
        able.remove(delivery.webhook.id)
        thread = threading.Thread(
            target=_deliver_in_order, args=(store, delivery), name=f"det-webhook-{delivery.webhook.id}", daemon=True
        )
        thread.start()
        threads.append(thread)


def _deliver_in_order(store: ServerStore, delivery: Delivery | None) -> None:
    """Deliver an event, and then those of its webhook that are due.

    Args:
        store: the tracking store.
        delivery: the event, which is claimed already.
    """
    try:
        while delivery:
            _attempt(store, delivery)
            delivery = store.claim_delivery([delivery.webhook.id])
    except Exception:  # noqa: BLE001  (the next attempt may succeed)
        _log.exception("events of webhooks could not be delivered")


def _attempt(store: ServerStore, delivery: Delivery) -> None:
    from det_core.tracking.webhook_request import send_event  # HTTP and TLS, which most processes do not need

    name = delivery.webhook.name
    try:
        send_event(delivery.webhook, delivery.event)
    except Exception as failure:  # noqa: BLE001  (such as a damaged secret, which must not hold back other webhooks)
        error = failure if isinstance(failure, DetError) else f"{type(failure).__name__}: {failure}"
        if delivery.webhook.error and utc_now() - delivery.time > _GIVE_UP_AFTER:
            _log.warning("webhook %s: gave up the event %s: %s", name, delivery.event["event_id"], error)
            store.confirm_delivery(delivery, error=str(error))
            return
        pause = min(_FIRST_PAUSE * 2.0 ** min(delivery.attempts - 1, 10), _LONGEST_PAUSE)
        _log.info("webhook %s: attempt %d failed: %s", name, delivery.attempts, error)
        store.postpone_delivery(delivery, seconds=pause, error=str(error))
    else:
        store.confirm_delivery(delivery)
