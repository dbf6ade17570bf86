"""Check of a certificate for TLS, and the names that it is valid for."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from det_core.errors import DetError
from det_server._allowed_origins import host_in_url

_STEPS = 10
"""Maximum number of messages of a handshake."""


def read_certificate_names(certificate: Path, key: Path) -> list[str]:
    """Return the host names and addresses that a certificate is valid for.

    A handshake in memory shows whether browsers could use it, and the standard library reads no certificate otherwise.

    Args:
        certificate: file with the certificate and those of its issuers, in PEM.
        key: file with its private key, in PEM.

    Raises:
        DetError: the files cannot be read, do not belong together, or the certificate has expired.
    """
    try:
        server, client = _contexts(certificate, key)
        found = _shake_hands(server, client)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise DetError(
            f"{certificate} and {key} cannot be used for TLS: {error}; expected a valid certificate and its key "
            "without a password, both in PEM"
        ) from None
    names = [value.lower() for kind, value in found.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    if not names:
        raise DetError(f"{certificate} names no hosts; expected a certificate with subjectAltName")
    return [host_in_url(name) for name in names]


def load_certificate(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Let a context use a certificate. A key with a password is an error, and nobody is asked for it at the terminal.

    Raises:
        OSError, ValueError: the files cannot be used.
    """
    context.load_cert_chain(certificate, key, password=lambda: "")


def _contexts(certificate: Path, key: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(server, certificate, key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate is trusted itself, whoever issued it
    client.load_verify_locations(certificate)
    return server, client


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Any]:
    """Connect both contexts in memory, and return the certificate that the client sees."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_side=False),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(_STEPS):
        waiting = [end for end in ends if not _step(end)]
        if not waiting:
            return dict(ends[0].getpeercert() or {})
    raise ValueError("no handshake is possible")


def _step(end: ssl.SSLObject) -> bool:
    """Continue a handshake, and return whether it is complete."""
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
