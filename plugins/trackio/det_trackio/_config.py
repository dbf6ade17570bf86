"""Config block of the ``trackio`` observer."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class TrackioConfig(BaseModel):
    """Config block of the ``trackio`` observer, which records an experiment in Trackio's store on this machine.

    Its directory is that of Trackio itself: TRACKIO_DIR in the environment of the workers.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    project: str | None = Field(default=None, min_length=1, examples=["digits"])
    """Name of the Trackio project. By default the name of the experiment, or ``det`` if it has none."""
    group: str | None = Field(default=None, min_length=1, examples=["baselines"])
    """Group of the runs. By default ``experiment ID`` for the trials of a search, and none for others."""
