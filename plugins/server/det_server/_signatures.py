"""Signed texts, and the key that signs them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets

from det_core.home import private_directory

_KEY_BYTES = 32


class Signer:
    """Signer of short texts, which are not secret.

    Args:
        key: key of the signatures.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def sign(self, text: str) -> str:
        """Return the text with its signature."""
        return f"{text}.{self._signature(text)}"

    def verify(self, signed: str) -> str | None:
        """Return the text of a signed text, or None if the signature is wrong."""
        text, _, signature = signed.rpartition(".")
        right = hmac.compare_digest(signature.encode(errors="replace"), self._signature(text).encode())
        return text if right else None

    def _signature(self, text: str) -> str:
        digest = hmac.new(self._key, text.encode(errors="replace"), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def load_signing_key() -> bytes:
    """Return the key of this user's servers, which is created in a private file if necessary."""
    path = private_directory("server") / "key"
    new = path.with_name(f".key-{secrets.token_hex(8)}")
    if not path.exists():
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        try:
            os.link(new, path)  # another server may have created it in the meantime
        except FileExistsError:
            pass
        finally:
            new.unlink()
    return path.read_bytes()
