"""Command ``det user``, which manages the users of a server in its tracking store."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from det_core.interfaces.account_records import UserRecord
    from det_core.interfaces.server_store import ServerStore

T = TypeVar("T")
_ROLES = ("admin", "user", "viewer")
_SCOPES = ("read", "write", "admin")
_MOST_DAYS = 36500
"""Longest life of an access token."""
_EXAMPLE = "example: det user create alice --role admin"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to the parser."""
    parser.epilog = _EXAMPLE
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    create = _add(commands, "create", _create, "create a user, whose password is asked for", "alice --role admin")
    create.add_argument("name", metavar="NAME", help="name of the user: letters, digits and ._@-")
    create.add_argument(
        "--role",
        choices=_ROLES,
        default="user",
        help="a viewer reads, a user also changes and trains, an admin also manages users (default: user)",
    )
    _add_password(create)
    _add(commands, "list", _list, "list all users", "")
    edit = _add(commands, "edit", _edit, "change the role or the password of a user", "alice --role viewer")
    edit.add_argument("name", metavar="NAME", help="name of the user")
    edit.add_argument("--role", choices=_ROLES, help="new role")
    edit.add_argument(
        "--password", action="store_true", help="ask for a new password, which ends all sessions and tokens"
    )
    _add_password(edit)
    for name, text in (
        ("deactivate", "refuse all logins and tokens of a user"),
        ("activate", "let a user log in again"),
    ):
        one = _add(commands, name, _set_active, text, "alice")
        one.set_defaults(active=name == "activate")
        one.add_argument("name", metavar="NAME", help="name of the user")
    token = _add(
        commands, "token", _create_token, "create an API token for scripts, and print it", "alice --scope read"
    )
    token.add_argument("name", metavar="NAME", help="name of the user")
    token.add_argument(
        "--scope",
        choices=_SCOPES,
        default="write",
        help="most that the token permits, up to the user's role (default: write)",
    )
    token.add_argument("--label", default="", metavar="TEXT", help="purpose of the token")
    token.add_argument("--days", type=int, default=90, metavar="N", help="days until it expires (default: 90)")


def _add(
    commands: Any, name: str, run: Callable[[argparse.Namespace, ServerStore], int], text: str, example: str
) -> argparse.ArgumentParser:
    line = f"example: det user {name} {example}".rstrip()
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text, epilog=line)
    parser.add_argument("--store", metavar="URL", help="tracking store of the server; default: det.db in DET_HOME")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=lambda args: _run(args, run))
    return parser


def _add_password(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--password-stdin", action="store_true", help="read the password from the first line of standard input"
    )


def _run(args: argparse.Namespace, run: Callable[[argparse.Namespace, ServerStore], int]) -> int:
    from det_core.errors import DetError
    from det_server._own_store import open_own_store

    with open_own_store(args.store) as store:
        try:
            return run(args, store)
        except ValueError as error:  # such as a name with other characters
            raise DetError(str(error)) from error


def _create(args: argparse.Namespace, store: ServerStore) -> int:
    from det_core.errors import RecordExists, RecordNotFound
    from det_core.interfaces.account_records import Role
    from det_server._passwords import hash_password

    try:
        store.user(args.name)
    except RecordNotFound:
        hashed = hash_password(_read_password(args))
        role = Role[args.role.upper()]
        create = partial(store.create_user, args.name, role=role, password=hashed)
        user = _change(store, f"create as {role}", args.name, create)
        return _show(args, [user], f"Created user {user.name} with the role {args.role}")
    raise RecordExists(f"there is a user {args.name} already; to change it: det user edit {args.name} --password")


def _list(args: argparse.Namespace, store: ServerStore) -> int:
    from det_core.text import format_table

    users = store.users()
    rows = [(user.name, user.role.value.lower(), "yes" if user.active else "no", _day(user)) for user in users]
    table = format_table(("name", "role", "active", "created"), rows)
    return _show(args, users, table if users else "No users yet. To create one: det user create NAME --role admin")


def _edit(args: argparse.Namespace, store: ServerStore) -> int:
    from det_core.errors import DetError
    from det_core.interfaces.account_records import Role
    from det_server._passwords import hash_password

    wants_password = args.password or args.password_stdin
    if args.role is None and not wants_password:
        raise DetError("nothing to change; give --role ROLE or --password")
    store.user(args.name)
    role = Role[args.role.upper()] if args.role else None
    password = hash_password(_read_password(args)) if wants_password else None
    actions = ", ".join(filter(None, (role and f"set role {role}", password and "set password")))
    user = _change(store, actions, args.name, partial(store.edit_user, args.name, role=role, password=password))
    return _show(args, [user], f"Changed user {user.name}")


def _set_active(args: argparse.Namespace, store: ServerStore) -> int:
    action = "activate" if args.active else "deactivate"
    user = _change(store, action, args.name, partial(store.edit_user, args.name, active=args.active))
    return _show(args, [user], f"User {user.name} can log in" if args.active else f"User {user.name} cannot log in now")


def _create_token(args: argparse.Namespace, store: ServerStore) -> int:
    from datetime import timedelta

    from det_core.errors import DetError
    from det_core.interfaces.account_records import TokenScope
    from det_server._access import AccountAccess, now

    if not 1 <= args.days <= _MOST_DAYS:
        raise DetError(f"--days {args.days}: expected 1 to {_MOST_DAYS}")
    expires = now() + timedelta(days=args.days)
    scope = TokenScope[args.scope.upper()]
    create = partial(AccountAccess(store).create_api_token, args.name, scope, args.label, expires)
    token = _change(store, f"create token {args.label}".rstrip(), args.name, create)
    if args.json:
        print(json.dumps({"token": token, "expires": expires.isoformat()}))  # noqa: T201
    else:
        print(token)  # noqa: T201
        print(f"Valid until {expires:%Y-%m-%d}. To use it: DET_MASTER=URL DET_TOKEN=TOKEN", file=sys.stderr)  # noqa: T201
    return 0


def _read_password(args: argparse.Namespace) -> str:
    """Return the password from standard input, or ask for it twice.

    Raises:
        DetError: both differ, or there is no terminal.
    """
    from getpass import getpass

    from det_core.errors import DetError

    if args.password_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise DetError("cannot ask for the password without a terminal; pass it with --password-stdin")
    password = getpass(f"Password of {args.name}: ")
    if getpass("The same again: ") != password:
        raise DetError("the passwords differ; try again")
    return password


def _change(store: ServerStore, action: str, name: str, change: Callable[[], T]) -> T:
    """Change a user together with an entry in the audit log, and return the result."""
    from det_core.home import user_name
    from det_core.interfaces.server_store import Action

    return store.record_change(Action(user_name(), action, f"user {name}", "command line"), change)


def _show(args: argparse.Namespace, users: Iterable[UserRecord], text: str) -> int:
    if args.json:
        print(json.dumps([_fields(user) for user in users]))  # noqa: T201
    else:
        print(text)  # noqa: T201
    return 0


def _fields(user: UserRecord) -> Mapping[str, object]:
    created = user.creation_time.isoformat()
    return {"id": user.id, "name": user.name, "role": user.role.value, "active": user.active, "created": created}


def _day(user: UserRecord) -> str:
    return f"{user.creation_time:%Y-%m-%d}"
