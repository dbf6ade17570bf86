"""The config block."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator


class S3Config(BaseModel):
    """``type: s3``: checkpoints in a bucket of S3, or of a store that speaks its protocol."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    bucket: str = Field(min_length=3, max_length=255)
    prefix: str = ""
    """Of all keys, without slashes at its ends; checkpoints are under ``prefix/uuid/``."""
    access_key: SecretStr | None = None
    """With secret_key. Without both, boto3 looks where it always does: environment, profiles, the host's role."""
    secret_key: SecretStr | None = None
    endpoint_url: str | None = None
    """Of another store than AWS, such as ``http://ceph.example:8080``."""
    region: str | None = None
    """Of the bucket, if boto3's own configuration does not say it."""
    request_checksum_calculation: Literal["when_supported", "when_required"] = "when_supported"
    """``when_required`` for stores that reject the checksums which S3 verifies on arrival; det verifies its own."""
    timeout: float = Field(60, ge=1, le=600)
    """Seconds for sending one request (8 MiB at most), and for each wait for its answer."""

    @field_validator("prefix")
    @classmethod
    def _prefix_stays_inside(cls, prefix: str) -> str:
        prefix = prefix.strip("/")
        if ".." in prefix.split("/"):
            raise ValueError(f"prefix {prefix!r} has a part '..', which means nothing in a bucket; remove it")
        return prefix

    @field_validator("endpoint_url")
    @classmethod
    def _endpoint_is_an_address(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
            raise ValueError("endpoint_url must be like https://host:port, without a user or a password")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _keys_come_together(self) -> S3Config:
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("access_key and secret_key belong together; give both, or neither")
        return self
