"""Records of the model registry: models and their versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ModelRecord:
    """A named model in the registry."""

    id: int
    """Id that the store assigned."""
    name: str
    """Unique name."""
    description: str
    """Purpose of the model."""
    notes: str
    """Free text that users add."""
    owner: str
    """Name of the user who created it."""
    metadata: Mapping[str, Any]
    """Metadata that users add, JSON-compatible."""
    labels: Sequence[str]
    """Labels that users add."""
    archived: bool
    """Whether the model is archived. An archived model takes no new versions."""
    creation_time: datetime
    """Time at which it was created."""
    last_updated_time: datetime
    """Time of the latest change of the model or one of its versions."""
    versions: int
    """Number of versions."""


@dataclass(frozen=True, kw_only=True)
class ModelVersionRecord:
    """A checkpoint registered as one version of a model."""

    model_id: int
    """Id of the model."""
    version: int
    """Number from 1 in the order of registration. A number is never used twice."""
    checkpoint_uuid: str
    """Id of the checkpoint."""
    name: str
    """Short name that users may give to the version."""
    comment: str
    """Comment on the version."""
    notes: str
    """Free text that users add."""
    owner: str
    """Name of the user who registered it."""
    metadata: Mapping[str, Any]
    """Metadata that users add, JSON-compatible."""
    labels: Sequence[str]
    """Labels that users add."""
    creation_time: datetime
    """Time at which it was registered."""
    last_updated_time: datetime
    """Time of the latest change of the version."""


class ModelSort(str, Enum):
    """Keys that models can be sorted by."""

    NAME = "name"
    DESCRIPTION = "description"
    CREATION_TIME = "creation_time"
    LAST_UPDATED_TIME = "last_updated_time"
