"""Addresses of HTTP servers in config blocks."""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["check_address"]


def check_address(address: str, keys: str) -> str:
    """Return the address of an HTTP server without slashes at its end.

    Args:
        address: the address, which errors never quote, because it may contain credentials.
        keys: keys of the config block for credentials, which errors name.

    Raises:
        ValueError: it is not the address of a server, or contains a part in which credentials might be.
    """
    if set("@?#") & set(address):
        raise ValueError(
            f"the address has a '@', '?' or '#', behind which credentials might be; write only the address of the "
            f"server, such as https://example.com:8080, and credentials as {keys}"
        )
    try:
        parts = urlsplit(address)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # such as a port that is no number
        is_usable = False
    if not is_usable or not address.isprintable() or " " in address:
        raise ValueError(
            "expected the address of a server, which begins with http:// or https://, such as https://example.com:8080"
        )
    return address.rstrip("/")
