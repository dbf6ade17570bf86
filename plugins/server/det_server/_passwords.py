"""Hashes of passwords. Checking takes the same time whether or not there is such a user."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from det_core.errors import DetError

if TYPE_CHECKING:
    from argon2 import PasswordHasher

SHORTEST = 10
"""Minimum number of characters of a password."""
LONGEST = 1000
"""Maximum number of characters of a password."""
NOBODY = "$argon2id$v=19$m=65536,t=3,p=4$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
"""Hash that no password has, with the same costs as those of `hash_password`."""
_AT_A_TIME = threading.BoundedSemaphore(2)
"""Passwords that are hashed at the same time. Each takes 64 MiB and a core for a moment."""
_WAITING = threading.BoundedSemaphore(10)
"""Passwords that are hashed or wait for it, so that logins never occupy all threads of the server."""


class PasswordError(DetError):
    """The password cannot be used."""


def hash_password(password: str) -> str:
    """Return the hash of a new password.

    Raises:
        PasswordError: it is too short or too long.
    """
    if not SHORTEST <= len(password) <= LONGEST:
        raise PasswordError(f"the password has {len(password)} characters; expected {SHORTEST} to {LONGEST}")
    return _hasher().hash(password)


def verify_password(hashed: str, password: str) -> bool:
    """Return whether a password is right.

    Args:
        hashed: hash of the right password, or an empty string if there is no such user. The check then takes as long.
        password: the password to check.

    Raises:
        PasswordError: too many passwords are being checked.
    """
    from argon2.exceptions import InvalidHashError, VerificationError

    if not _WAITING.acquire(blocking=False):
        raise PasswordError("too many people are logging in at the moment; try again")
    try:
        with _AT_A_TIME:
            return _hasher().verify(hashed or NOBODY, password[:LONGEST]) and bool(hashed)
    except (VerificationError, InvalidHashError):
        return False
    finally:
        _WAITING.release()


def _hasher() -> PasswordHasher:
    from argon2 import PasswordHasher

    return PasswordHasher()  # its defaults are the second profile of RFC 9106
