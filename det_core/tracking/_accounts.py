"""Users and access tokens in the tracking store."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, FromClause, delete, exists, func, or_, select, true, update

from det_core.errors import RecordExists, RecordInUse, RecordNotFound
from det_core.interfaces.account_records import (
    MAX_TOKENS,
    AccessTokenRecord,
    Role,
    TokenKind,
    TokenScope,
    UserRecord,
)
from det_core.tracking._column_types import make_writable, utc_now
from det_core.tracking._rows import (
    StoreMixin,
    fetch_only_row,
    fetch_record,
    fetch_records,
    insert_row,
    record_columns,
)
from det_core.tracking._schema import access_tokens, users

if TYPE_CHECKING:
    from datetime import datetime

_USER_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_c = access_tokens.c


class AccountsMixin(StoreMixin):
    """Methods of the tracking store for users and access tokens."""

    def create_user(self, name: str, *, role: Role, password: str) -> UserRecord:
        if not _USER_NAME.fullmatch(name):
            raise ValueError(
                f"the user name {name!r:.100} is invalid; expected 1 to 64 letters, digits and ._@-, such as ada"
            )
        values = {"name": name, "role": role, "password": password, "active": True, "creation_time": utc_now()}
        with self._database.write(alone=True, durable=True) as connection:
            if connection.execute(select(users.c.id).where(users.c.name == name)).first():
                raise RecordExists(f"there is a user {name!r} already; choose another name")
            insert_row(connection, users, values)
            return _get_user(connection, name)

    def user(self, name: str) -> UserRecord:
        with self._database.read() as connection:
            return _get_user(connection, name)

    def users(self) -> list[UserRecord]:
        query = select(*record_columns(users, UserRecord))
        with self._database.read() as connection:
            return sorted(fetch_records(connection, UserRecord, query), key=lambda user: user.name)

    def password_hash(self, name: str) -> str:
        query = select(users.c.password, users.c.active).where(users.c.name == name)
        with self._database.read(urgent=True) as connection:
            user = fetch_only_row(connection, query, f"user {name!r}")
            return str(user.password) if user.active else ""

    def edit_user(
        self, name: str, *, role: Role | None = None, password: str | None = None, active: bool | None = None
    ) -> UserRecord:
        values = {"role": role, "password": password, "active": active}
        changed = {key: value for key, value in values.items() if value is not None}
        with self._database.write(alone=True, durable=True) as connection:
            user = _get_user(connection, name)
            if changed:
                connection.execute(update(users).where(users.c.id == user.id).values(changed))
            if password is not None or active is False:
                connection.execute(delete(access_tokens).where(_c.user_id == user.id))
            if user.active and user.role is Role.ADMIN:
                _require_admin(connection, name)
            return _get_user(connection, name)

    def add_access_token(
        self,
        digest: str,
        *,
        user: str,
        kind: TokenKind,
        scope: TokenScope,
        label: str = "",
        expires: datetime | None = None,
        trial_id: int | None = None,
        run_id: int | None = None,
        parent_id: int | None = None,
        password: str | None = None,
    ) -> AccessTokenRecord:
        _check_token(digest, user, kind, trial_id, run_id)
        now = utc_now()
        values = {
            "digest": digest,
            "kind": kind,
            "scope": scope,
            "label": make_writable(label),
            "expires": expires,
            "trial_id": trial_id,
            "run_id": run_id,
            "parent_id": parent_id,
            "creation_time": now,
        }
        with self._database.write(durable=True) as connection:
            connection.execute(delete(access_tokens).where(_c.expires <= now))
            if user:
                values["user_id"] = user_id = _lock_active_user(connection, user, password)
                _require_few_tokens(connection, user, user_id, kind)
            if connection.execute(select(_c.id).where(_c.digest == digest)).first():
                raise RecordExists("there is an access token with this digest already")
            token = insert_row(connection, access_tokens, values)
            (record,) = _tokens(connection, _c.id == token)
            return record

    def access_token(self, digest: str) -> AccessTokenRecord:
        with self._database.read(urgent=True) as connection:
            found = _tokens(connection, _c.digest == digest, _is_valid())
            if not found:
                raise RecordNotFound("the access token is unknown or has expired; log in again or create another one")
            return found[0]

    def access_tokens(
        self, user: str | None = None, *, before: int | None = None, limit: int | None = None
    ) -> list[AccessTokenRecord]:
        is_of_user = true() if user is None else users.c.name == user
        is_earlier = true() if before is None else _c.id < before
        with self._database.read() as connection:
            if user is not None:
                _get_user(connection, user)
            return _tokens(connection, _is_valid(), is_of_user, is_earlier, limit=limit)

    def extend_access_token(self, token_id: int, *, expires: datetime) -> None:
        with self._database.write() as connection:
            connection.execute(
                update(access_tokens).where(_c.id == token_id, _is_current(access_tokens)).values(expires=expires)
            )

    def delete_access_token(self, token_id: int) -> None:
        with self._database.write(durable=True) as connection:
            connection.execute(delete(access_tokens).where(_c.id == token_id))


def _get_user(connection: Connection, name: str) -> UserRecord:
    return fetch_record(connection, UserRecord, users, users.c.name == name, what=f"user {name!r:.100}")


def _require_admin(connection: Connection, name: str) -> None:
    admins = select(users.c.id).where(users.c.role == Role.ADMIN, users.c.active)
    if connection.execute(admins.limit(1)).first() is None:
        raise RecordInUse(f"{name!r} is the last active admin; make another user an admin first")


def _lock_active_user(connection: Connection, name: str, password: str | None) -> int:
    """Return the id of a user, whom no other transaction changes until the end of this one."""
    has_password = true() if password is None else users.c.password == password
    query = select(users.c.id).where(users.c.name == name, users.c.active, has_password).with_for_update()
    what = f"active user {name!r:.100}" + ("" if password is None else " with this password")
    return int(fetch_only_row(connection, query, what).id)


def _require_few_tokens(connection: Connection, user: str, user_id: int, kind: TokenKind) -> None:
    """Raise RecordInUse if a user has too many tokens. Those of runs end with the runs, of which there may be many."""
    count = select(func.count()).select_from(access_tokens).where(_c.user_id == user_id, _c.kind == kind)
    if kind is not TokenKind.RUN and connection.execute(count).scalar_one() >= MAX_TOKENS:
        what = "sessions" if kind is TokenKind.SESSION else "access tokens"
        raise RecordInUse(
            f"{user!r} has {MAX_TOKENS} {what}; expected at most {MAX_TOKENS}: delete some on the page Account, or "
            "change the password, which ends all"
        )


def _check_token(digest: str, user: str, kind: TokenKind, trial_id: int | None, run_id: int | None) -> None:
    if not _DIGEST.fullmatch(digest):
        raise ValueError("the digest of an access token must be 64 hexadecimal digits, as SHA-256 returns")
    is_of_run = kind is TokenKind.RUN
    if (trial_id is not None, run_id is not None) != (is_of_run, is_of_run):
        raise ValueError(f"an access token of the kind {kind} {'needs' if is_of_run else 'has no'} trial_id and run_id")
    if not (user or is_of_run):
        raise ValueError(f"an access token of the kind {kind} needs a user")


def _tokens(connection: Connection, *where: ColumnElement[bool], limit: int | None = None) -> list[AccessTokenRecord]:
    """Return the latest tokens that match, in the order of their creation."""
    fields = (_c.id, _c.kind, _c.scope, _c.label, _c.trial_id, _c.run_id, _c.creation_time, _c.expires)
    query = select(*fields, users.c.name, users.c.role).outerjoin_from(access_tokens, users).where(*where)
    latest = connection.execute(query.order_by(_c.id.desc()).limit(limit)).mappings().all()
    return [_token(dict(row)) for row in reversed(latest)]


def _token(values: dict[str, Any]) -> AccessTokenRecord:
    return AccessTokenRecord(user=values.pop("name") or "", role=values.pop("role") or Role.USER, **values)


def _is_valid() -> ColumnElement[bool]:
    parents = access_tokens.alias()
    has_parent = exists().where(parents.c.id == _c.parent_id, _is_current(parents))
    has_user = or_(_c.user_id.is_(None), users.c.active)
    return _is_current(access_tokens) & has_user & or_(_c.parent_id.is_(None), has_parent)


def _is_current(tokens: FromClause) -> ColumnElement[bool]:
    return or_(tokens.c.expires.is_(None), tokens.c.expires > utc_now())
