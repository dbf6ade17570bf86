"""Recorded code of experiments runs without ``trust`` only if this user submitted it to the own embedded store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from det_core.experimental._recorded_code import recorded_code
from det_core.home import home_directory, user_name
from det_core.interfaces.tracking import TrackingStore
from det_core.launch.context_archive import pack_context_dir
from det_core.tracking import open_store


@pytest.fixture
def submit(tmp_path: Path) -> Callable[..., str]:
    """Return a function that records an experiment with code and a checkpoint, and returns the id of the checkpoint."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "model_def.py").write_text("x = 1\n")

    def create(store: TrackingStore, **options: Any) -> str:
        archive = pack_context_dir(tmp_path / "code")
        options = {"owner": user_name(), "model_definition": archive, **options}
        experiment = store.create_experiment(config={}, **options)
        trial = store.create_trial(experiment.id, hparams={}, seed=1)
        run = store.start_run(trial.id, allocation_id="")
        store.begin_checkpoint("c1", trial_id=trial.id, run_id=run.run_id, storage={})
        return "c1"

    return create


def test_code_that_this_user_submitted_is_provided(store: TrackingStore, submit: Callable[..., str]) -> None:
    path = recorded_code(store, submit(store), False)
    assert path is not None and (path / "model_def.py").read_text() == "x = 1\n"
    assert recorded_code(store, "unknown", True) is None


@pytest.mark.parametrize("options", [{"owner": "someone-else"}, {"unmanaged": True}])
def test_code_of_others_needs_trust(store: TrackingStore, submit: Callable[..., str], options: dict[str, Any]) -> None:
    storage_id = submit(store, **options)
    assert recorded_code(store, storage_id, False) is None
    assert recorded_code(store, storage_id, True) is not None


def test_code_in_other_stores_needs_trust(tmp_path: Path, store: TrackingStore, submit: Callable[..., str]) -> None:
    with open_store(f"sqlite:///{tmp_path / 'other.db'}") as other:
        storage_id = submit(other)
        assert recorded_code(other, storage_id, False) is None
        assert recorded_code(other, storage_id, True) is not None


@pytest.mark.parametrize("name", ["", "det.db"])
def test_code_in_a_store_that_others_can_write_needs_trust(
    store: TrackingStore, submit: Callable[..., str], name: str
) -> None:
    storage_id = submit(store)
    place = home_directory() / name
    place.chmod(place.stat().st_mode | 0o002)
    assert recorded_code(store, storage_id, False) is None
    assert recorded_code(store, storage_id, True) is not None


def test_an_experiment_without_code_provides_none(store: TrackingStore, submit: Callable[..., str]) -> None:
    assert recorded_code(store, submit(store, model_definition=b""), True) is None
