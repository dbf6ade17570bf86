"""Config block of the ``fsspec`` store."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    StrictBool,
    StrictFloat,
    StrictInt,
    field_validator,
    model_validator,
)
from typing_extensions import Self

Writes = Literal["rename", "direct"]
Option = SecretStr | StrictBool | StrictInt | StrictFloat | None

SFTP: Final = ("sftp", "ssh")
"""Protocols of URLs that are read by SFTP."""
TIME_LIMITS: Final = {
    **dict.fromkeys(SFTP, ("timeout", "banner_timeout", "auth_timeout")),
    **dict.fromkeys(("ftp", "smb"), ("timeout",)),
}
"""Arguments of file systems that are time limits in seconds, by protocol."""
WRITES: Final[dict[str, Writes]] = {
    "file": "rename",
    "local": "rename",
    **dict.fromkeys(SFTP, "rename"),
}
"""Protocols of which det knows how they store a file whole or not at all."""
_OWN_STORES: Final = {
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gcs"),
    **dict.fromkeys(("az", "abfs", "abfss"), "azure"),
}
"""Names of det's own stores by the protocols of their buckets."""
_SECRET_NAME: Final = re.compile(r"passw|passphrase|pwd|secret|token|credential|(^|_)(key|pin)$", re.I)


class FsspecConfig(BaseModel):
    """Config block of the ``fsspec`` store, which keeps checkpoints in any file system of fsspec."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = Field(examples=["sftp://store.example.com/data/checkpoints"])
    """Directory of the checkpoints, as a URL of fsspec. All hosts must reach the same directory by it."""
    storage_options: dict[str, Option | dict[str, Option]] = Field(
        default={}, examples=[{"username": "ada", "password": "PASSWORD"}]
    )
    """Arguments of the file system's class. Every text is kept as a secret. A password of digits needs quotes."""
    writes: Writes | None = Field(default=None, examples=["rename"])
    """Way to store a file whole or not at all. ``rename`` writes a new file and then renames it, which must replace an
    earlier one in one step. ``direct`` writes to the final place. Needed for protocols that det does not know."""
    timeout: float = Field(default=60.0, gt=0, le=3600, examples=[120], json_schema_extra={"unit": "seconds"})
    """For SFTP, the number of seconds without an answer of the server after which a connection is given up."""

    @property
    def protocol(self) -> str:
        """Protocol of the URL."""
        return urlsplit(self.url).scheme

    @property
    def way(self) -> Writes:
        """Way to store a file whole or not at all."""
        return self.writes or WRITES[self.protocol]

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of the file system's class, with their secrets."""
        return {name: _reveal(value) for name, value in self.storage_options.items()}

    @field_validator("url")
    @classmethod
    def _is_a_directory(cls, url: str) -> str:
        try:
            parts, port = urlsplit(url), urlsplit(url).port
        except ValueError:  # never quoted, because the port may be a part of a password
            raise ValueError("the URL has an invalid host or port; write sftp://user@host:22/directory") from None
        if parts.password is not None:  # never quoted
            raise ValueError("the URL contains a password; remove it, and write it into storage_options")
        if parts.query or parts.fragment:  # never quoted, because they may contain a key
            raise ValueError("the URL has a '?' or '#'; write only a directory, such as sftp://user@host/directory")
        if not parts.scheme or "::" in url:
            raise ValueError(f"{url!r} is not the URL of a directory, such as sftp://user@host/directory")
        if not url.startswith(f"{parts.scheme}:"):  # fsspec would take it for a path relative to each process
            raise ValueError(f"{url!r} begins with a blank or a capital letter; write {parts.scheme}://...")
        if own := _OWN_STORES.get(parts.scheme):
            raise ValueError(f"use det's own store for {parts.scheme}://, which is checkpoint_storage: {{type: {own}}}")
        if port == 0 or (parts.scheme in SFTP and not parts.hostname):
            raise ValueError(f"{url!r} has no host, or the port 0; write sftp://user@host:22/directory")
        if parts.scheme == "memory":
            raise ValueError("memory:// is lost with each process; use a file system that all processes share")
        if parts.scheme in ("file", "local"):
            if parts.netloc or not parts.path.startswith("/") or not parts.path.strip("/"):
                raise ValueError(f"{url!r} does not name an absolute path; write file:///directory")
            if "%" in parts.path:  # fsspec does not decode it
                raise ValueError(f"{url!r} contains '%'; write the path as it is, blanks included")
        return url.rstrip("/")

    @field_validator("storage_options")
    @classmethod
    def _has_usable_numbers(cls, options: dict[str, Any]) -> dict[str, Any]:
        for name, value in _walk(options):
            if type(value) in (int, float) and _SECRET_NAME.search(name):
                raise ValueError(f"{name} is a number; write it in quotes, so that it is kept as a secret")
        port = options.get("port", 22)
        if type(port) is not int or not 0 < port < 65536:
            raise ValueError("port is not a number from 1 to 65535; write it without quotes, such as port: 22")
        return options

    @model_validator(mode="after")
    def _stores_whole_files(self) -> Self:
        if self.writes is None and self.protocol not in WRITES:
            raise ValueError(
                f"det does not know whether {self.protocol}:// stores a file whole or not at all; if it replaces files "
                "by renaming in one step, set writes: rename; if each write has this property, set writes: direct; "
                "otherwise it cannot keep checkpoints"
            )
        return self


def _walk(options: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in options.items():
        yield from _walk(value) if isinstance(value, Mapping) else ((name, value),)


def _reveal(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _reveal(item) for key, item in value.items()}
    return value.get_secret_value() if isinstance(value, SecretStr) else value
