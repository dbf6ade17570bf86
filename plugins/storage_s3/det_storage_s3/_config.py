"""Config block of the ``s3`` store."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from det_core.interfaces.addresses import check_address
from det_core.storage import BucketPrefix


class S3Config(BaseModel):
    """Config block of the ``s3`` store, which keeps checkpoints in a bucket of S3 or of a compatible store."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    bucket: str = Field(min_length=3, max_length=255, pattern="^[^@?#]+$", examples=["my-checkpoints"])
    """Name of the bucket."""
    prefix: BucketPrefix = Field(default="", examples=["team/digits"])
    """Key prefix of all objects. Checkpoints have keys under ``prefix/uuid/``. Superfluous slashes, and single dots
    between slashes, are removed."""
    access_key: SecretStr | None = Field(default=None, examples=["ACCESS_KEY"])
    """Access key. It requires secret_key. If both are unset, boto3 finds credentials in the environment, in profiles or
    in the host's role."""
    secret_key: SecretStr | None = Field(default=None, examples=["SECRET_KEY"])
    """Secret key. It requires access_key."""
    endpoint_url: str | None = Field(default=None, examples=["http://ceph.example:8080"])
    """URL of a store other than AWS, such as ``http://ceph.example:8080``."""
    region: str | None = Field(default=None, examples=["eu-central-1"])
    """Region of the bucket, if boto3's own configuration does not contain it."""
    request_checksum_calculation: Literal["when_supported", "when_required"] = "when_supported"
    """Use of checksums that S3 verifies on arrival. Set ``when_required`` for stores that reject them. det verifies its
    own checksums in either case."""
    timeout: float = Field(60, ge=1, le=600, examples=[120], json_schema_extra={"unit": "seconds"})
    """Time limit in seconds for sending one request (at most 8 MiB), and for each wait for its response."""

    @field_validator("endpoint_url")
    @classmethod
    def _endpoint_is_an_address(cls, url: str | None) -> str | None:
        return None if url is None else check_address(url, "the keys access_key and secret_key")

    @model_validator(mode="after")
    def _keys_come_together(self) -> S3Config:
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("access_key and secret_key belong together; set both or neither")
        return self
