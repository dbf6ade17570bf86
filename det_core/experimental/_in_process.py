"""Training in this process, for tests and for classes that no other process can import."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from det_core import core
from det_core.config import parse_config
from det_core.errors import InvalidExperimentException
from det_core.experimental._one_batch import embedded_store, one_batch_config, temporary_home
from det_core.experimental._progress_display import display_progress, print_line, print_notices
from det_core.plugins import plugin_registry
from det_core.tracking import open_store
from det_core.trial import Trial, framework_of

_ELSEWHERE = ("checkpoint_storage", "distributed", "resources")
"""Config keys that do not apply to a test in this process."""


def train_one_batch(trial_def: type[Trial], config: Mapping[str, Any], directory: Path, *, needs_metric: bool) -> None:
    """Train one batch, validate, save a checkpoint and remove everything. Errors of the trial propagate unchanged.

    Args:
        trial_def: trial class.
        config: config of the experiment.
        directory: directory with the code.
        needs_metric: whether the validation must return the metric of the searcher.
    """
    kept = {key: value for key, value in parse_config(config).dump().items() if key not in _ELSEWHERE}
    policy = "best" if needs_metric else "all"
    with temporary_home():
        experiment_id, _ = _train(trial_def, one_batch_config(kept) | {"checkpoint_policy": policy}, directory)
        with open_store() as store:
            reports = [report for trial in store.trials(experiment_id) for report in store.metrics(trial.id)]
            saved = store.checkpoints(experiment_id=experiment_id)
    groups = ", ".join(f"{report.group} metrics {dict(report.metrics)}" for report in reports)
    files = [name for name in saved[0].resources if not name.endswith("/")]
    print_line(f"The test passed: {groups}, and a checkpoint of {len(files)} files")


def train_in_process(trial_def: type[Trial], config: Mapping[str, Any], directory: Path) -> tuple[int, str]:
    """Train one trial to its end in an unmanaged experiment.

    Returns:
        The id of the experiment, and the URL of its tracking store.

    Raises:
        InvalidExperimentException: the config asks for more than one trial, or more than one slot.
    """
    parsed = parse_config(config)
    if parsed.searcher.name != "single" or parsed.resources.slots_per_trial > 1:
        raise InvalidExperimentException(
            f"{trial_def.__name__} is defined in this session and cannot be imported by other processes, so it trains "
            "in this process: one trial on one slot. To search, or to use several slots, write it to a file and import "
            "it from there"
        )
    print_notices(parsed)
    with embedded_store():
        return _train(trial_def, parsed.dump(), directory)


def _train(trial_def: type[Trial], config: Mapping[str, Any], directory: Path) -> tuple[int, str]:
    spec = framework_of(trial_def)
    plugin_registry().load(spec)  # raises before the experiment is recorded
    try:
        with _inside(directory):
            context = core.init(config=config, quiet=True)
            place = context.trial.experiment_id, context._store.url
            with display_progress(*place), context:
                plugin_registry().call_target(spec, trial_def, context)
    except SystemExit as stop:
        raise InvalidExperimentException(
            f"the trial's code ended the process ({stop.code!r}); it must not call sys.exit() or raise InvalidHP when "
            "it trains in this process"
        ) from stop
    return place


@contextmanager
def _inside(directory: Path) -> Iterator[None]:
    """Run the block with ``directory`` as working directory and first import directory."""
    before, path = Path.cwd(), str(directory.absolute())
    os.chdir(directory)
    sys.path.insert(0, path)
    try:
        yield
    finally:
        sys.path.remove(path)
        os.chdir(before)
