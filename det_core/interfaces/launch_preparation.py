"""Arguments and answer of the hook ``det_prepare_launch``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """A run of a trial that is about to be launched. It contains no secrets."""

    experiment_id: int
    """Id of the experiment."""
    trial_id: int
    """Id of the trial."""
    run_id: int
    """Number of the run within the trial, from 1."""
    config: Mapping[str, Any] = field(repr=False)
    """Complete experiment config, without secrets."""
    argv: Sequence[str]
    """Command line, with the wrappers of the plugins before."""
    slots: int
    """Number of workers, >= 1."""


@dataclass(frozen=True, kw_only=True)
class LaunchAdditions:
    """Additions of one plugin to a launch.

    Args:
        env: environment variables. They must not begin with ``DET_``. A variable that the config sets keeps that value.
        wrapper: beginning of a command line, such as ``("nsys", "profile")``, that is put before the command line.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    wrapper: Sequence[str] = ()
