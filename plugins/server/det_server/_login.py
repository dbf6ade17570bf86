"""Logins with a user name and a password."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable

from det_core.errors import DetError, RecordNotFound
from det_core.interfaces.server_store import Action, ServerStore
from det_server import _passwords
from det_server._login_limits import LoginLimits
from det_server._passwords import PasswordError
from det_server._refusal import RefusedError

_LONGEST_DEVICE = 100
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")


class Login:
    """Check of user names and passwords.

    Args:
        store: the tracking store, which has the hashes.
    """

    def __init__(self, store: ServerStore) -> None:
        self._store = store
        self._limits = LoginLimits()

    def check(self, user: str, password: str, address: str, find_device: Callable[[], str]) -> str:
        """Check a user's password, and record the attempt in the audit log.

        An unknown user, an inactive one and a wrong password have the same answer after the same time.

        Args:
            user: name of the user.
            password: the password.
            address: network address of the client.
            find_device: function that returns the id of a device from which the user has logged in before, or an empty
                string. It is called only if the address has had too many attempts.

        Returns:
            The hash of the password.

        Raises:
            RefusedError: the user or the password is wrong, or there were too many attempts or logins.
        """
        device = self._count_attempt(user, address, find_device)
        try:
            hashed = self._hash(user)
            right = _passwords.verify_password(hashed, password)
        except DetError as error:  # the password was not checked
            self._limits.take_back(user, address, device)
            if isinstance(error, PasswordError):
                raise RefusedError(503, str(error), {"retry-after": "5"}) from None
            raise
        if right:
            self._limits.forgive(user, address, device)
            self.count_change(user)
        known = user if _NAME.fullmatch(user) else "?"
        if not right:
            self._record_failure(known, address)
            raise RefusedError(401, "the user name or the password is wrong")
        self._store.record_action(Action(known, "login", address=address))
        return hashed

    def _count_attempt(self, user: str, address: str, find_device: Callable[[], str]) -> str:
        """Count an attempt, and return the device that it counts for, or an empty string if it is the address."""
        try:
            self._limits.count_attempt(user, address)
        except RefusedError:
            device = find_device()
            if not device:
                raise
            self._limits.count_attempt(user, address, device)
            return device
        return ""

    def _record_failure(self, user: str, address: str) -> None:
        more = self._limits.count_failure()
        if more == "":
            self._store.record_action(Action(user, "failed login", address=address))
        elif more:
            self._store.record_action(Action("?", "failed login", more))

    def count_change(self, user: str) -> None:
        """Count a change that a user makes to the own account. Raises RefusedError if there were too many."""
        self._limits.count_change(user)

    def remember_device(self, user: str) -> str:
        """Return what a client presents at later logins of this user, until the password changes."""
        device = secrets.token_urlsafe(16)
        return f"{device}.{_sign(self._hash(user), device)}"

    def known_device(self, user: str, remembered: str) -> str:
        """Return the id of a client's device, or an empty string if it is not one of this user's."""
        device, _, signature = remembered[:_LONGEST_DEVICE].partition(".")
        if not signature:
            return ""
        key = self._hash(user)
        is_right = hmac.compare_digest(signature.encode(errors="replace"), _sign(key, device).encode())
        return device if key and is_right else ""

    def _hash(self, user: str) -> str:
        """Return the hash of an active user's password, or an empty string, after the same time."""
        try:
            return self._store.password_hash(user if _NAME.fullmatch(user) else "?")
        except RecordNotFound:
            return ""


def _sign(key: str, device: str) -> str:
    return hmac.new(key.encode(), f"device~{device}".encode(errors="replace"), hashlib.sha256).hexdigest()
