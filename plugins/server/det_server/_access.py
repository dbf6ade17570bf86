"""Rules on who may call a server, which is its only user or people with accounts."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from abc import ABC, abstractmethod
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import NamedTuple

from det_core.errors import RecordNotFound
from det_core.home import user_name
from det_core.interfaces.account_records import AccessTokenRecord, Role, TokenKind, TokenScope
from det_core.interfaces.server_store import ServerStore
from det_core.tracking.remote import RunAccess, require_current
from det_server._login import Login
from det_server._principal import Principal
from det_server._refusal import RefusedError
from det_server._session_renewals import SessionRenewals
from det_server._signatures import Signer

IDLE = timedelta(hours=12)
"""Time without a request after which a session ends."""
LONGEST_SESSION = timedelta(days=7)
"""Time after which a session ends in any case."""
RUN_TOKEN_LIFE = timedelta(days=90)
"""Time after which the token of a run is invalid, also if the run has not ended."""
_RENEW_AFTER = timedelta(minutes=10)
"""Age of a session's last renewal after which a request renews it again."""
_LONGEST_TOKEN = 200
_ROLES = {TokenScope.READ: Role.VIEWER, TokenScope.WRITE: Role.USER, TokenScope.ADMIN: Role.ADMIN}


class CookieCaller(NamedTuple):
    """Caller of a request that has a cookie."""

    principal: Principal
    """The caller."""
    cookie: str | None
    """New value of the cookie, or None if it stays as it is."""


class Access(ABC):
    """Rules on who may call.

    Args:
        store: the tracking store, which has the tokens of runs.
    """

    has_users: bool
    """Whether people log in."""

    def __init__(self, store: ServerStore) -> None:
        self._store = store
        self._experiment_of = lru_cache(maxsize=10_000)(lambda trial_id: store.trial(trial_id).experiment_id)

    @abstractmethod
    def admit_bearer(self, secret: str) -> Principal | None:
        """Return the caller with this ``Authorization: Bearer``, or None if it is not valid."""

    @abstractmethod
    def admit_cookie(self, value: str, *, renew: bool = True) -> CookieCaller | None:
        """Return the caller with this cookie, or None if it is not valid.

        Args:
            value: the cookie.
            renew: whether this is a request, after which the session lasts longer.
        """

    @abstractmethod
    def admit_link(self, secret: str) -> str | None:
        """Return the cookie for the token of a URL, or None if it is not valid."""

    def create_run_token(self, principal: Principal, trial_id: int, run_id: int) -> str:
        """Return a new token for the workers of a run, which ends with the run and with the token of the caller.

        Raises:
            RecordNotFound: there is no such run.
            StaleRun: the run has ended, or is not the newest of the trial.
        """
        require_current(self._store, self._run(trial_id, run_id))
        return self._add_token(
            user=principal.name if self.has_users else "",
            kind=TokenKind.RUN,
            scope=TokenScope.WRITE,
            expires=now() + RUN_TOKEN_LIFE,
            trial_id=trial_id,
            run_id=run_id,
            parent_id=principal.token_id,
        )

    def _add_token(self, **fields: object) -> str:
        secret = secrets.token_urlsafe(32)
        try:
            self._store.add_access_token(_digest(secret), **fields)  # type: ignore[arg-type]
        except RecordNotFound:
            if fields.get("password") is None:
                raise
            raise RefusedError(401, "the password or the account has changed meanwhile; log in again") from None
        return secret

    def _find_token(self, secret: str) -> AccessTokenRecord | None:
        if len(secret) > _LONGEST_TOKEN:
            return None
        try:
            return self._store.access_token(_digest(secret))
        except RecordNotFound:
            return None

    def _run(self, trial_id: int, run_id: int) -> RunAccess:
        return RunAccess(self._experiment_of(trial_id), trial_id, run_id)

    def _principal(self, token: AccessTokenRecord) -> Principal:
        run = None
        if token.kind is TokenKind.RUN:
            assert token.trial_id is not None and token.run_id is not None
            run = self._run(token.trial_id, token.run_id)
        return Principal(token.user or user_name(), _weaker(token.role, _ROLES[token.scope]), run, token.id)


class LocalAccess(Access):
    """Access for the user who started a server on a loopback address.

    The cookie and the token of the command line are signed, so that both survive a restart of the server.

    Args:
        store: the tracking store.
        key: key of the signatures.
    """

    has_users = False

    def __init__(self, store: ServerStore, key: bytes) -> None:
        super().__init__(store)
        self._signer = Signer(key)
        self._user = Principal(user_name(), Role.ADMIN)
        self.link_token = secrets.token_urlsafe(24)
        """Token of the URL that the server prints."""
        self.command_line_token = self._signer.sign(f"commands~{store.cluster_id}")
        """Token for the commands of this user."""

    def admit_bearer(self, secret: str) -> Principal | None:
        """Return the user, or a run of a trial."""
        if _equal(secret, self.command_line_token) or _equal(secret, self.link_token):
            return self._user
        token = self._find_token(secret)
        return self._principal(token) if token and token.kind is TokenKind.RUN else None

    def admit_cookie(self, value: str, *, renew: bool = True) -> CookieCaller | None:
        """Return the user, with a new cookie from time to time."""
        kind, _, times = (self._signer.verify(value) or "").partition("~")
        if kind != "session":
            return None
        begun, renewed = map(int, times.split("~"))
        if now().timestamp() > min(renewed + IDLE.total_seconds(), begun + LONGEST_SESSION.total_seconds()):
            return None
        due = now().timestamp() > renewed + _RENEW_AFTER.total_seconds()
        return CookieCaller(self._user, self._cookie(begun) if renew and due else None)

    def admit_link(self, secret: str) -> str | None:
        """Return a new cookie if the token is that of this server."""
        return self._cookie(int(now().timestamp())) if _equal(secret, self.link_token) else None

    def _cookie(self, begun: int) -> str:
        return self._signer.sign(f"session~{begun}~{int(now().timestamp())}")


class AccountAccess(Access):
    """Access for people with accounts, whose sessions and tokens are in the tracking store."""

    has_users = True

    def __init__(self, store: ServerStore) -> None:
        super().__init__(store)
        self._owner_of = lru_cache(maxsize=10_000)(
            lambda trial_id: store.experiment(self._experiment_of(trial_id)).owner
        )
        self.login = Login(store)
        """Check of user names and passwords."""
        self._renewals = SessionRenewals(store)

    def admit_bearer(self, secret: str) -> Principal | None:
        """Return the user or run of a token. That of a browser's session is for its cookie only."""
        token = self._find_token(secret)
        if token is None or token.kind is TokenKind.SESSION or self._has_lost_run(token):
            return None
        return self._principal(token)

    def admit_cookie(self, value: str, *, renew: bool = True) -> CookieCaller | None:
        """Return the user of a session. Other tokens are no cookies."""
        token = self._find_token(value)
        if token is None or token.kind is not TokenKind.SESSION:
            return None
        if renew:
            self._renew(token)
        return CookieCaller(self._principal(token), None)

    def admit_link(self, secret: str) -> str | None:
        """Return None, because people log in."""
        return None

    def create_session(self, user: str, password: str) -> str:
        """Return a new token for the cookie of a browser. Arguments and errors are those of `create_api_token`."""
        return self._add_token(
            user=user, kind=TokenKind.SESSION, scope=TokenScope.ADMIN, expires=now() + IDLE, password=password
        )

    def create_api_token(
        self, user: str, scope: TokenScope, label: str, expires: datetime | None, password: str | None = None
    ) -> str:
        """Return a new token for a script.

        Args:
            user: name of the user.
            scope: limit of the role.
            label: purpose of the token.
            expires: time from which it is invalid, or None if that is never.
            password: hash of the password with which the user has logged in, or None if nobody logs in.

        Raises:
            RefusedError: the user is not active, or has another password by now.
        """
        return self._add_token(
            user=user, kind=TokenKind.API, scope=scope, label=label, expires=expires, password=password
        )

    def _has_lost_run(self, token: AccessTokenRecord) -> bool:
        """Return whether a token is for the run of somebody else, and its user is no admin any more."""
        if token.trial_id is None or not token.user or token.role.includes(Role.ADMIN):
            return False
        return self._owner_of(token.trial_id) not in ("", token.user)

    def _renew(self, token: AccessTokenRecord) -> None:
        assert token.expires is not None
        expires = min(now() + IDLE, token.creation_time + LONGEST_SESSION)
        if expires - token.expires > _RENEW_AFTER:
            self._renewals.request(token.id, expires)


def role_of_scope(scope: TokenScope, role: Role) -> Role | None:
    """Return the role that a scope permits, or None if it is more than the given role."""
    permitted = _ROLES[scope]
    return permitted if role.includes(permitted) else None


def now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(timezone.utc)


def _weaker(one: Role, other: Role) -> Role:
    return other if one.includes(other) else one


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
