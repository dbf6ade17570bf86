"""Workers of trial classes are forks of a process that has imported their modules."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from det_core.config import ExperimentConfig, parse_config
from det_core.interfaces.records import ExperimentRecord, State
from det_core.interfaces.tracking import TrackingStore
from det_core.launch.early_start import prepare_first_launch
from det_core.launch.machine_slots import reserve_slots
from det_core.launch.prepared_process import PreparedProcess, prepared_processes
from det_core.runner import ExperimentRunner

from .conftest import Submit, install_plugin

pytestmark = pytest.mark.integration

RING = Path(__file__).parents[2] / "examples" / "backend_plugin" / "det_ring.py"
REPORT = """import atexit
def report():
    import gc, types  # which leaves out objects from before a fork
    found = [one.__name__ for one in gc.get_objects() if isinstance(one, types.ModuleType)]
    print(*sorted(name for name in found if name.startswith("det_")))
atexit.register(report)
"""


def late_imports(store: TrackingStore, experiment: ExperimentRecord) -> list[str]:
    """Run a trial, and return the modules of det that its workers have imported themselves."""
    assert ExperimentRunner(store, experiment.id).run() is State.COMPLETED
    (trial,) = store.trials(experiment.id)
    lines = [line.log for line in store.logs(trial.id) if line.stdtype == "stdout"]
    assert len(lines) == experiment.config["resources"]["slots_per_trial"]
    return " ".join(lines).split()


def test_a_worker_imports_nothing_of_det_and_its_framework(store: TrackingStore, new_experiment: Submit) -> None:
    assert late_imports(store, new_experiment(REPORT)) == []


@pytest.mark.usefixtures("new_processes")
def test_a_config_may_ask_for_new_processes(store: TrackingStore, new_experiment: Submit) -> None:
    experiment = new_experiment(REPORT, launcher={"type": "local", "prepare": False})
    assert "det_core.trial" in late_imports(store, experiment)


def test_the_first_launch_finds_what_was_prepared_for_it(
    store: TrackingStore, new_experiment: Submit, context_dir: Path
) -> None:
    environment = {"environment_variables": ["COLOR=red", "LD_BIND_NOW=1"]}
    experiment = new_experiment(REPORT, environment=environment, launcher={"type": "local", "slots": 2})
    prepare_first_launch(parse_config(experiment.config), context_dir)
    early = newest_prepared()
    assert late_imports(store, experiment) == []
    assert newest_prepared() is early


@pytest.mark.parametrize("slots", [1, 2])
def test_a_launch_with_a_backend_finds_what_was_prepared_for_it(
    store: TrackingStore,
    new_experiment: Submit,
    context_dir: Path,
    plugin_site: Path,
    monkeypatch: pytest.MonkeyPatch,
    slots: int,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    install_plugin(plugin_site, RING, monkeypatch)
    keys = {"resources": {"slots_per_trial": slots}, "launcher": {"type": "local", "slots": slots}}
    experiment = new_experiment(REPORT, **keys, distributed={"backend": "ring"})
    prepare_first_launch(parse_config(experiment.config), context_dir)
    early = newest_prepared()
    assert late_imports(store, experiment) == []
    assert newest_prepared() is early


@pytest.mark.parametrize(
    "changes",
    [
        {"entrypoint": "python3 train.py"},
        {"launcher": {"type": "local", "prepare": False}},
    ],
)
def test_nothing_is_prepared_for_workers_that_are_new_processes(changes: Any, context_dir: Path) -> None:
    before = newest_prepared()
    prepare_first_launch(make_config(**changes), context_dir)
    assert newest_prepared() is before


def test_nothing_is_prepared_for_a_launch_that_will_wait_for_its_slot(context_dir: Path) -> None:
    config, before = make_config(), newest_prepared()
    with closing(reserve_slots(["cpu-0"], 1, priority=1, submitted=datetime.now(timezone.utc))) as taken:
        assert taken.poll() == [0]
        prepare_first_launch(config, context_dir)
        assert newest_prepared() is before


def test_nothing_is_prepared_if_plugins_will_add_variables(
    context_dir: Path, plugin_site: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plugin = tmp_path / "det_adds.py"
    plugin.write_text("import det_core\n\n@det_core.hookimpl\ndef det_prepare_launch(launch):\n    return None\n")
    install_plugin(plugin_site, plugin, monkeypatch)
    before = newest_prepared()
    prepare_first_launch(make_config(), context_dir)
    assert newest_prepared() is before


def make_config(**changes: Any) -> ExperimentConfig:
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 1}}
    return parse_config({"entrypoint": "model_def:T", "searcher": searcher, **changes})


def newest_prepared() -> PreparedProcess | None:
    """Return the prepared process of this process that was used last."""
    return next(reversed(prepared_processes()._kept.values()), None)
