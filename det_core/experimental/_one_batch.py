"""Configs and environment for a test of one batch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from det_core.config import is_command
from det_core.home import MASTER_VARIABLES
from det_core.launch._slot_directory import DIRECTORY_VARIABLE
from det_core.scratch import scratch_directory


def one_batch_config(config: dict[str, Any]) -> dict[str, Any]:
    """Change the config so that one trial trains one batch and then validates and saves once.

    A command trains for a length of 1 in the unit of its config. Observers are left out, because the test is removed.
    """
    searcher = config["searcher"]
    kept = {key: searcher[key] for key in ("metric", "smaller_is_better")}
    length = searcher.get("max_length") if is_command(config["entrypoint"]) else {"batches": 1}
    one = dict.fromkeys(length, 1) if isinstance(length, dict) else length and 1
    return config | {
        "searcher": {"name": "single", "max_length": one, **kept},
        "scheduling_unit": 1,
        "max_restarts": 0,
        "observers": {},
        "min_validation_period": {"batches": 0},
        "min_checkpoint_period": {"batches": 0},
        "rehearsal": False,
    }


@contextmanager
def temporary_home() -> Iterator[None]:
    """Use a temporary ``DET_HOME``, with an empty store, default storage and free slots, while the block runs."""
    with (
        scratch_directory("test") as home,
        embedded_store({"DET_HOME": str(home), DIRECTORY_VARIABLE: str(home / "slots")}),
    ):
        yield


@contextmanager
def embedded_store(variables: Mapping[str, str] | None = None) -> Iterator[None]:
    """Let the embedded store be the default one while the block runs, whatever ``DET_MASTER`` says.

    Args:
        variables: environment variables to set.
    """
    changed = {**dict.fromkeys(MASTER_VARIABLES, ""), **(variables or {})}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
