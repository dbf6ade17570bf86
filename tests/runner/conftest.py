"""Experiments of the toy framework, installed as a distribution of its own, whose processes are forks."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import importlib_metadata
import pytest
from det_testing.fork_server import run_fork_server
from det_testing.plugin_metadata import write_plugin_metadata

from det_core import storage
from det_core.config import parse_config
from det_core.core import open_storage_block
from det_core.home import default_storage
from det_core.interfaces.records import ExperimentRecord, State
from det_core.interfaces.tracking import TrackingStore
from det_core.launch import node_agent, worker_environment
from det_core.launch._guarded_command import SpawnedCommand
from det_core.launch._prepared_command import WORKER_MODULES
from det_core.launch.worker_environment import make_search_path
from det_core.plugins import plugin_registry
from det_core.runner import submit_experiment
from det_core.tracking import open_store

TOY = Path(__file__).parent.parent / "toy"
LAUNCH_MODULES = ("det_core.launch._node", "det_core.launch.standalone")
"""Modules with which backends start workers."""

Submit = Callable[..., ExperimentRecord]


@pytest.fixture(scope="session")
def toy_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the toy framework, and return its directory."""
    site = tmp_path_factory.mktemp("toy")
    write_plugin_metadata(site, "det-toy")
    shutil.copy(TOY / "det_toy.py", site)
    return site


@pytest.fixture(scope="session")
def installed(toy_site: Path) -> tuple[list[str], importlib_metadata.EntryPoints]:
    """Return ``sys.path`` with the toy framework, and the entry points found on it."""
    path = [str(toy_site), *sys.path]
    return path, importlib_metadata.EntryPoints(
        point for one in importlib_metadata.distributions(path=path) for point in one.entry_points.select(group="det")
    )


@pytest.fixture(autouse=True)
def toy_framework(toy_site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process and those that it starts find the toy framework."""
    monkeypatch.setenv("PYTHONPATH", str(toy_site))
    monkeypatch.syspath_prepend(toy_site)


@pytest.fixture
def plugin_site(tmp_path: Path, toy_site: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory for further plugins, which this process and those that it starts find."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{toy_site}")
    monkeypatch.syspath_prepend(site)
    return site


def install_plugin(site: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a plugin that consists of one file."""
    write_plugin_metadata(site, file.stem.replace("_", "-"))
    shutil.copy(file, site)
    monkeypatch.delitem(sys.modules, file.stem, raising=False)
    plugin_registry.cache_clear()


@pytest.fixture(scope="session")
def fork_words(toy_site: Path) -> Iterator[list[str]]:
    """Run a server whose forks need not import det, and return the words that make a Python command one of them."""
    with ExitStack() as session:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(toy_site))
            words = session.enter_context(run_fork_server([*WORKER_MODULES, *LAUNCH_MODULES, "det_toy"]))
        yield words


@pytest.fixture(scope="session")
def fork_path(fork_words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory whose ``python3`` is a fork."""
    directory = tmp_path_factory.mktemp("forks")
    script = directory / "python3"
    script.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, *fork_words])} "$@"\n')
    script.chmod(0o700)
    return directory


@pytest.fixture
def new_processes() -> None:
    """Let the processes of trials be new ones."""


@pytest.fixture(autouse=True)
def _quick_processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes of trials be forks, unless a test requests `new_processes`."""
    if request.node.get_closest_marker("integration") is None or "new_processes" in request.fixturenames:
        return
    words, path = request.getfixturevalue("fork_words"), request.getfixturevalue("fork_path")

    def start(argv: Sequence[str], *args: Any, **options: Any) -> SpawnedCommand:
        if argv[0] == sys.executable:
            argv = [part for word in argv for part in ([*words, word] if word == "-m" else [word])]
        return SpawnedCommand(argv, *args, **options)

    monkeypatch.setattr(node_agent, "SpawnedCommand", start)
    monkeypatch.setattr(worker_environment, "make_search_path", lambda: f"{path}{os.pathsep}{make_search_path()}")


@pytest.fixture
def store(det_home: Path) -> Iterator[TrackingStore]:
    with open_store() as store:
        yield store


@pytest.fixture
def context_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "code"
    directory.mkdir()
    return directory


def start_runner(store: TrackingStore, experiment_id: int) -> subprocess.Popen[bytes]:
    """Start a runner as a child process, as `start_detached` does."""
    runner = subprocess.Popen(
        [sys.executable, "-m", "det_core.runner", str(experiment_id)], stdin=subprocess.PIPE, bufsize=0
    )
    assert runner.stdin
    with runner.stdin as pipe:
        pipe.write(f"{store.url}\n".encode())
    return runner


def keep_all() -> dict[str, Any]:
    """Return the default storage with a policy that removes nothing."""
    return {**default_storage(), "save_trial_latest": 1000}


@pytest.fixture
def new_experiment(store: TrackingStore, context_dir: Path) -> Submit:
    """Submit a trial class, given as the body of ``class T(ToyTrial)``, with changed config keys."""

    def new(body: str = "pass", **changes: Any) -> ExperimentRecord:
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        (context_dir / "model_def.py").write_text(
            f"import os, signal, time\nfrom pathlib import Path\nimport det_core as det\n"
            f"from det_toy import ToyTrial\nclass T(ToyTrial):\n{lines}"
        )
        config = {
            "name": "toy",
            "entrypoint": "model_def:T",
            "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"batches": 50}},
            "scheduling_unit": 10,
            "reproducibility": {"experiment_seed": 7},
            "checkpoint_storage": keep_all(),
            **changes,
        }
        return submit_experiment(store, parse_config(config), context_dir)

    return new


@pytest.fixture
def saved(store: TrackingStore, tmp_path: Path) -> Callable[..., ExperimentRecord]:
    """Record an experiment whose trial saved three checkpoints and ended in a state."""

    def save(state: State, **searcher: Any) -> ExperimentRecord:
        block = {"type": "directory", "container_path": str(tmp_path / "checkpoints"), "save_trial_latest": 1}
        searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 40}, **searcher}
        config = parse_config({"entrypoint": "true", "searcher": searcher, "checkpoint_storage": block}).dump()
        experiment = store.create_experiment(config=config)
        trial = store.create_trial(experiment.id, hparams={}, seed=0)
        run = store.start_run(trial.id, allocation_id="a")
        for number in (1, 2, 3):
            uuid = f"{experiment.id}-{number}"
            store.begin_checkpoint(uuid, trial_id=trial.id, run_id=run.run_id, storage=block)
            resources = storage.save_checkpoint(open_storage_block(block), uuid, {}, {"steps_completed": number})
            store.complete_checkpoint(uuid, run_id=run.run_id, steps_completed=number, resources=resources, metadata={})
        store.set_trial_state(trial.id, state)
        store.set_experiment_state(experiment.id, state)
        return store.experiment(experiment.id)

    return save
