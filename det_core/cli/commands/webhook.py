"""Command ``det webhook``, which manages the receivers of events in the tracking store of this host."""

from __future__ import annotations

import argparse
import uuid
from typing import TYPE_CHECKING

from det_core.cli._command_table import JSON, Command, add_commands, make_argument
from det_core.cli.commands._own_database import choose_database
from det_core.cli.render.printing import print_json
from det_core.errors import DetError, RecordExists, RecordNotFound
from det_core.interfaces.webhook_records import WEBHOOK_STATES, WebhookFormat, WebhookRecord
from det_core.text import format_count, format_table, mask_references, record_to_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from det_core.interfaces.records import State
    from det_core.interfaces.server_store import ServerStore

_DEFAULT_STATES = "completed,error"
_FORMATS = [one.value.lower() for one in WebhookFormat]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the commands to the parser."""
    add_commands(parser, _COMMANDS)


def _add(args: argparse.Namespace) -> int:
    from det_core.interfaces.secrets import Secret
    from det_core.interfaces.webhook_records import secret_block
    from det_core.tracking.secret_files import delete_secrets, store_secrets
    from det_core.tracking.webhook_request import check_url, create_key

    parts, key = check_url(args.url), Secret(create_key())
    whole = parts._replace(path=parts.path or "/", fragment="").geturl()
    url = Secret(whole, public=f"{parts.scheme}://{parts.netloc}/")
    with _open_store(args) as store:
        references = store_secrets(secret_block(args.name, url, key), shared=False)
        try:
            webhook = store.create_webhook(
                args.name,
                url=references[url],
                key=references[key],
                format=WebhookFormat[args.format.upper()],
                states=args.on,
                private=args.private,
            )
        except (RecordExists, ValueError) as error:  # such as a name with other characters
            delete_secrets(secret_block(args.name, references[url], references[key]))
            raise DetError(str(error)) from error
    if args.json:
        print_json({**_document(webhook), "key": str(key)})
    else:
        print(f"Added webhook {webhook.name}. To try it: det webhook test {webhook.name}")
        print(f"Key of the signatures, which is shown only now: {key!s}")
    return 0


def _list(args: argparse.Namespace) -> int:
    with _open_store(args) as store:
        found = store.webhooks()
    if args.json:
        print_json([_document(one) for one in found])
    elif found:
        rows = (
            (one.name, mask_references(one.url), one.format.lower(), _names(one.states), one.waiting, one.error)
            for one in found
        )
        print(format_table(("name", "url", "format", "on", "waiting", "last error"), rows))
    else:
        print("No webhooks yet. To add one: det webhook add NAME URL")
    return 0


def _test(args: argparse.Namespace) -> int:
    from det_core.tracking.webhook_request import send_event

    with _open_store(args) as store:
        webhook = _find(store, args.name)
    send_event(webhook, {"event_id": str(uuid.uuid4()), "event_type": "TEST", "event_data": {}})
    if args.json:
        print_json({"name": webhook.name, "delivered": True})
    else:
        print(f"Webhook {webhook.name} has received a test event")
    return 0


def _remove(args: argparse.Namespace) -> int:
    from det_core.interfaces.webhook_records import secret_block
    from det_core.tracking.secret_files import delete_secrets

    with _open_store(args) as store:
        webhook = _find(store, args.name)
        store.delete_webhook(args.name)
    delete_secrets(secret_block(webhook.name, webhook.url, webhook.key))
    if args.json:
        print_json({"name": args.name, "dropped": webhook.waiting})
    else:
        events = format_count(webhook.waiting, "event")
        dropped = f", with {events} that it had not received" if webhook.waiting else ""
        print(f"Removed webhook {args.name}{dropped}")
    return 0


def _find(store: ServerStore, name: str) -> WebhookRecord:
    for webhook in store.webhooks():
        if webhook.name == name:
            return webhook
    raise RecordNotFound(f"there is no webhook {name!r}; to see all: det webhook list")


def _open_store(args: argparse.Namespace) -> ServerStore:
    from det_core.interfaces.server_store import ServerStore
    from det_core.tracking import open_store

    store = open_store(choose_database(args.store, command="det webhook", option="--store"))
    assert isinstance(store, ServerStore)
    return store


def _document(webhook: WebhookRecord) -> dict[str, object]:
    document = record_to_json(webhook)
    del document["key"]
    return document


def _names(states: Iterable[State]) -> str:
    return ",".join(state.lower() for state in states)


def _parse_states(text: str) -> list[State]:
    known = {state.value.lower(): state for state in WEBHOOK_STATES}
    if unknown := set(text.split(",")) - set(known):
        raise argparse.ArgumentTypeError(f"{min(unknown)!r} is not one of {','.join(known)}")
    return [known[name] for name in dict.fromkeys(text.split(","))]


_NAME = make_argument("name", metavar="NAME", help="name of the webhook")
_STORE = make_argument("--store", metavar="URL", help="tracking store of a server; default: det.db in DET_HOME")
_COMMANDS = (
    Command(
        "add",
        _add,
        "announce changes of experiments to a URL",
        (
            _NAME,
            make_argument("url", metavar="URL", help="URL of the receiver, which is kept like a password"),
            make_argument(
                "--on",
                type=_parse_states,
                default=_DEFAULT_STATES,
                metavar="STATES",
                help=f"states to announce: {_names(WEBHOOK_STATES)} (default: {_DEFAULT_STATES})",
            ),
            make_argument("--format", choices=_FORMATS, default="default", help="body of the requests"),
            make_argument("--private", action="store_true", help="permit a receiver in the private network"),
            _STORE,
            JSON,
        ),
        example="pager https://example.org/hook\nteam https://hooks.slack.com/services/T0/B0/x --format slack",
    ),
    Command("list", _list, "list all webhooks, and what they have not delivered", (_STORE, JSON)),
    Command("test", _test, "send an event of the type TEST to a webhook now", (_NAME, _STORE, JSON), example="pager"),
    Command("rm", _remove, "remove a webhook", (_NAME, _STORE, JSON), example="pager"),
)
