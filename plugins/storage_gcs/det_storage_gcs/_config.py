"""Config block of the ``gcs`` store."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator


class GCSConfig(BaseModel):
    """Config block of the ``gcs`` store, which keeps checkpoints in a bucket of Google Cloud Storage.

    Credentials are always the application's default ones. The config contains none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    bucket: str = Field(min_length=1)
    """Name of the bucket, without ``gs://``."""
    prefix: str = ""
    """Name prefix of all objects. Surrounding slashes are stripped."""
    timeout: float = Field(default=60.0, gt=0, le=3600)
    """Number of seconds without a byte from the server after which a request is aborted and retried."""

    @field_validator("bucket")
    @classmethod
    def _is_a_name(cls, bucket: str) -> str:
        if "/" in bucket:
            name, _, prefix = bucket.removeprefix("gs://").partition("/")
            raise ValueError(
                f"{bucket!r} is not a bucket name; write bucket: {name}" + (f" and prefix: {prefix}" if prefix else "")
            )
        return bucket

    @field_validator("prefix")
    @classmethod
    def _without_slashes(cls, prefix: str) -> str:
        if {".", ".."} & set(prefix.split("/")):
            raise ValueError(
                f"prefix {prefix!r} must not contain . or .. between slashes; object names have no directories"
            )
        return prefix.strip("/")
