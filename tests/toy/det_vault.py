"""A store that opens only with the right keys: a stranger's plugin in one file, whose options are secrets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, Field, SecretStr, field_validator, model_validator

import det_core
from det_core.errors import StorageError
from det_core.specs import StorageSpec
from det_core.storage.config import DirectoryConfig
from det_core.storage.directory import DirectoryStorage

ACCESS, SECRET, PIN = "AKIA-hunter2-access", "se/cr+et: 'hunter2' \"x\"", "hunter2-pin"


@det_core.hookimpl
def det_storage() -> Iterator[StorageSpec]:
    yield StorageSpec(name="vault", target="det_vault:VaultStorage", config_model="det_vault:VaultConfig")


class VaultConfig(BaseModel):
    path: Path
    access_key: str = Field(min_length=len(ACCESS), max_length=len(ACCESS))
    secret_key: SecretStr | None = None
    pin: SecretStr

    @field_validator("access_key")
    @classmethod
    def _begins_as_all(cls, key: str) -> str:
        if not key.startswith("AKIA"):
            raise ValueError(f"the key {key} does not begin with AKIA")
        return key

    @model_validator(mode="after")
    def _is_no_file(self) -> VaultConfig:
        if self.path.is_file():
            raise ValueError(f"the key {self.access_key} does not open {self.path}, a file")
        return self


class VaultStorage(DirectoryStorage):
    def __init__(self, config: VaultConfig) -> None:
        given = (config.access_key, config.secret_key and config.secret_key.get_secret_value())
        if (*given, config.pin.get_secret_value()) != (ACCESS, SECRET, PIN):
            raise StorageError("the vault stays closed: a key is wrong")
        super().__init__(DirectoryConfig(container_path=config.path))
        self.transfers = 2
