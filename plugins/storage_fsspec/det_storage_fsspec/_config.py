"""Config block of the ``fsspec`` store."""

from __future__ import annotations

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

WRITES: Final[dict[str, Writes]] = {
    "file": "rename",
    "local": "rename",
    "sftp": "rename",
    "ssh": "rename",
    **dict.fromkeys(("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss"), "direct"),
}
"""Protocols of which det knows how they store a file whole or not at all."""


class FsspecConfig(BaseModel):
    """Config block of the ``fsspec`` store, which keeps checkpoints in any file system of fsspec."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = Field(examples=["sftp://store.example.com/data/checkpoints"])
    """Directory of the checkpoints, as a URL of fsspec. All hosts must reach the same directory by it."""
    storage_options: dict[str, Option | dict[str, Option]] = Field(
        default={}, examples=[{"username": "ada", "password": "PASSWORD"}]
    )
    """Arguments of the file system's class. Every text is kept as a secret."""
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
        parts = urlsplit(url)
        if parts.password is not None:  # never quoted
            raise ValueError("the URL contains a password; remove it, and write it into storage_options")
        if parts.query or parts.fragment:  # never quoted, because they may contain a key
            raise ValueError("the URL has a '?' or '#'; write only a directory, such as sftp://user@host/directory")
        if not parts.scheme or "::" in url:
            raise ValueError(f"{url!r} is not the URL of a directory, such as sftp://user@host/directory")
        if not url.startswith(f"{parts.scheme}:"):  # fsspec would take it for a path relative to each process
            raise ValueError(f"{url!r} begins with a blank or a capital letter; write {parts.scheme}://...")
        if parts.scheme == "memory":
            raise ValueError("memory:// is lost with each process; use a file system that all processes share")
        if parts.scheme in ("file", "local"):
            if parts.netloc or not parts.path.startswith("/") or not parts.path.strip("/"):
                raise ValueError(f"{url!r} does not name an absolute path; write file:///directory")
            if "%" in parts.path:  # fsspec does not decode it
                raise ValueError(f"{url!r} contains '%'; write the path as it is, blanks included")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _stores_whole_files(self) -> Self:
        if self.writes is None and self.protocol not in WRITES:
            raise ValueError(
                f"det does not know whether {self.protocol}:// stores a file whole or not at all; if it replaces files "
                "by renaming in one step, set writes: rename; if each write has this property, set writes: direct; "
                "otherwise it cannot keep checkpoints"
            )
        return self


def _reveal(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _reveal(item) for key, item in value.items()}
    return value.get_secret_value() if isinstance(value, SecretStr) else value
