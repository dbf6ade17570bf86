"""Encryption between hosts, and authentication of the processes that hold DET_COMM_KEY."""

from __future__ import annotations

import datetime
import functools
import os
import ssl
import tempfile
from typing import Final

KEY: Final = "DET_COMM_KEY"
"""Environment variable with the secret that the workers of a job share."""
_SHORTEST: Final = 32
"""Minimum length of the key in characters."""
_HINT: Final = "make one with `python3 -c 'import secrets; print(secrets.token_hex(32))'` and set it for all workers"


def make_tls_contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the TLS settings of both sides.

    With these, both sides use TLS 1.3, show the same certificate, which is derived from the key, and trust no other.

    Returns:
        The settings of the side that listens, and of the side that connects.

    Raises:
        ValueError: DET_COMM_KEY is missing or too short.
    """
    key = os.environ.get(KEY)
    if not key:
        raise ValueError(f"workers that communicate over TCP need the environment variable {KEY}: {_HINT}")
    if len(key) < _SHORTEST:
        raise ValueError(f"{KEY} has {len(key)} characters; expected {_SHORTEST} or more: {_HINT}")
    certificate, private = _identity(key)
    return _context(certificate, private, server=True), _context(certificate, private, server=False)


def _context(certificate: bytes, private: bytes, *, server: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate stands for the key, not for a host
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=certificate.decode())
    with tempfile.NamedTemporaryFile() as file:  # mode 0600; ssl reads certificates from files only
        file.write(certificate + private)
        file.flush()
        context.load_cert_chain(file.name)
    if server:
        context.num_tickets = 0  # sessions are not resumed, and unread tickets would turn a close into a reset
    return context


@functools.cache
def _identity(key: str) -> tuple[bytes, bytes]:
    """Return certificate and private key in PEM, which are the same for the same key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    from cryptography.x509.oid import NameOID

    seed = HKDF(hashes.SHA256(), length=32, salt=None, info=b"det collectives, version 1").derive(key.encode())
    private = Ed25519PrivateKey.from_private_bytes(seed)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "det worker")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(datetime.datetime(2000, 1, 1, tzinfo=datetime.timezone.utc))
        .not_valid_after(datetime.datetime(9999, 12, 31, tzinfo=datetime.timezone.utc))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, algorithm=None)
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
