"""Config block of the ``azure`` store."""

from __future__ import annotations

import re
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from typing_extensions import Self

from det_core.interfaces.addresses import check_address
from det_core.storage import BucketPrefix

_ENDPOINT: Final = re.compile(r"(^|;)\s*(AccountName|BlobEndpoint)=\s*[^;\s]", re.I)


class AzureConfig(BaseModel):
    """Config block of the ``azure`` store, which keeps checkpoints in a container of Azure Blob Storage."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    container: str = Field(pattern=r"^(\$root|[a-z0-9](-?[a-z0-9]){2,62})$", max_length=63, examples=["checkpoints"])
    """Name of the container, which must exist: 3 to 63 lower-case letters, digits and single hyphens."""
    prefix: BucketPrefix = Field(default="", examples=["team/digits"])
    """Name prefix of all blobs. Superfluous slashes, and single dots between slashes, are removed."""
    connection_string: SecretStr | None = Field(
        default=None, examples=["DefaultEndpointsProtocol=https;AccountName=ACCOUNT;AccountKey=KEY"]
    )
    """Connection string of the account, as the Azure portal shows it. It excludes `account_url` and `credential`."""
    account_url: str | None = Field(default=None, examples=["https://myaccount.blob.core.windows.net"])
    """URL of the account's blob service, without a query."""
    credential: SecretStr | None = Field(default=None, examples=["KEY_OR_SAS_TOKEN"])
    """Key or SAS token for `account_url`. None = access without a credential."""
    timeout: float = Field(default=60.0, gt=0, le=3600, examples=[120], json_schema_extra={"unit": "seconds"})
    """Number of seconds without a byte from the server after which a request is aborted and retried."""

    @field_validator("connection_string")
    @classmethod
    def _names_an_account(cls, text: SecretStr | None) -> SecretStr | None:
        if text and not _ENDPOINT.search(text.get_secret_value()):  # never quoted
            raise ValueError("it names no account; copy it whole, from DefaultEndpointsProtocol= on")
        return text

    @field_validator("account_url")
    @classmethod
    def _is_an_address(cls, url: str | None) -> str | None:
        return url and check_address(url, "the key credential")

    @model_validator(mode="after")
    def _has_one_account(self) -> Self:
        if bool(self.connection_string) == bool(self.account_url):
            raise ValueError("set either connection_string or account_url")
        if self.credential and not self.account_url:
            raise ValueError("credential needs account_url; a connection_string contains its own")
        return self
