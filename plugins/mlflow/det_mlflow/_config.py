"""Config block of the ``mlflow`` observer."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints, field_validator, model_validator
from typing_extensions import Self

from det_core.interfaces.addresses import check_address

_URI = "MLFLOW_TRACKING_URI"

TagName = Annotated[str, StringConstraints(pattern=r"^[\w.\- :/]+$", max_length=250)]
"""Name of a tag that MLflow accepts."""


class MLflowConfig(BaseModel):
    """Config block of the ``mlflow`` observer, which records an experiment on an MLflow tracking server."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)

    tracking_uri: str = Field(
        default_factory=lambda: os.environ.get(_URI, ""), validate_default=True, examples=["http://127.0.0.1:5000"]
    )
    """Address of the server, such as ``https://mlflow.example.com``. By default that of MLFLOW_TRACKING_URI when the
    experiment is submitted."""
    experiment_name: str | None = Field(default=None, min_length=1, max_length=500, examples=["digits"])
    """Name of the MLflow experiment. By default the name of the experiment, or ``det`` if it has none."""
    tags: dict[TagName, str] = Field(default_factory=dict, examples=[{"team": "vision"}])
    """Additional tags of all runs."""
    checkpoints: Literal["reference", "copy"] = "reference"
    """Whether a run contains the location of each checkpoint, or also a copy of its files as artifacts."""
    username: str | None = Field(default=None, examples=["ada"])
    """Name of the user, instead of MLFLOW_TRACKING_USERNAME."""
    password: SecretStr | None = Field(default=None, examples=["PASSWORD"])
    """Password of the user, instead of MLFLOW_TRACKING_PASSWORD."""
    token: SecretStr | None = Field(default=None, examples=["TOKEN"])
    """Bearer token, instead of MLFLOW_TRACKING_TOKEN."""
    timeout: float = Field(default=10.0, gt=0, le=300, examples=[30], json_schema_extra={"unit": "seconds"})
    """Number of seconds without a byte from the server after which a request is aborted."""

    @field_validator("tracking_uri")
    @classmethod
    def _is_a_server(cls, uri: str) -> str:
        if not uri:
            raise ValueError(
                f"expected the address of an MLflow server, such as http://127.0.0.1:5000, here or in {_URI}"
            )
        if not uri.lower().startswith(("http://", "https://")) and not set("@?#") & set(uri):
            raise ValueError(
                f"{uri!r} is not the address of an MLflow server, which begins with http:// or https://; for files or "
                f"a database, start one: mlflow server --host 127.0.0.1 --port 5000 --backend-store-uri {uri}"
            )
        return check_address(
            uri, "the keys username and password, or as MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )

    @model_validator(mode="after")
    def _has_one_identity(self) -> Self:
        if self.password and not self.username:
            raise ValueError("password needs a username")
        if self.token and self.username:
            raise ValueError("token and username exclude each other")
        return self
