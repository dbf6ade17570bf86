"""Config block of the ``gcs`` store."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator

from det_core.storage import BucketPrefix


class GCSConfig(BaseModel):
    """Config block of the ``gcs`` store, which keeps checkpoints in a bucket of Google Cloud Storage.

    Credentials are always the application's default ones. The config contains none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    bucket: str = Field(min_length=1, examples=["my-checkpoints"])
    """Name of the bucket, without ``gs://``."""
    prefix: BucketPrefix = Field(default="", examples=["team/digits"])
    """Name prefix of all objects. Superfluous slashes, and single dots between slashes, are removed."""
    timeout: float = Field(default=60.0, gt=0, le=3600, examples=[120], json_schema_extra={"unit": "seconds"})
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
