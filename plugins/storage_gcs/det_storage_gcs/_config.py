"""The config block of ``type: gcs``."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator


class GCSConfig(BaseModel):
    """``type: gcs``: checkpoints in a bucket. Credentials are the application's default ones, never in the config."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bucket: str = Field(min_length=1)
    """Its name alone, without ``gs://``."""
    prefix: str = ""
    """Goes before all names; slashes at its ends do not matter."""
    timeout: float = Field(default=60.0, gt=0, le=3600)
    """Seconds without a byte from the server after which a request is given up and tried again."""

    @field_validator("bucket")
    @classmethod
    def _is_a_name(cls, bucket: str) -> str:
        if "/" in bucket:
            name, _, prefix = bucket.removeprefix("gs://").partition("/")
            raise ValueError(
                f"{bucket!r} is no name of a bucket; write bucket: {name}"
                + (f" and prefix: {prefix}" if prefix else "")
            )
        return bucket

    @field_validator("prefix")
    @classmethod
    def _without_slashes(cls, prefix: str) -> str:
        if {".", ".."} & set(prefix.split("/")):
            raise ValueError(
                f"prefix {prefix!r} must not have . or .. between slashes; object names have no directories"
            )
        return prefix.strip("/")
