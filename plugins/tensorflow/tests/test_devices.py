"""Every slot uses its own GPU. The tests need none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from det_tensorflow import devices
from det_tensorflow.context import TensorFlowTrialContext

from det_core.config import parse_config
from det_core.errors import InvalidTrial


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Names of the GPUs that were made visible, on a machine with two."""
    made: list[Any] = []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [f"{kind} 0", f"{kind} 1"])
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda visible, kind: made.append(visible))
    return made


def context(local_rank: int, slots: int = 2) -> TensorFlowTrialContext:
    config = {
        "entrypoint": "model_def:Trial",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
        "resources": {"slots_per_trial": slots},
    }
    place: Any = SimpleNamespace(local_rank=local_rank)
    ids = {"trial_id": 0, "experiment_id": 0, "trial_seed": 0}
    return TensorFlowTrialContext(config=parse_config(config), hparams={}, distributed=place, **ids)


def test_a_slot_has_the_gpu_of_its_number(chosen: list[Any]) -> None:
    user = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    user.gpu_options.allow_growth = True
    for rank in (0, 1):
        devices.set_visible_gpu(context(rank))
        config = devices.make_session_config(user, context(rank))
        assert config.gpu_options.visible_device_list == str(rank)
        assert config.gpu_options.allow_growth and config.allow_soft_placement
    assert chosen == ["GPU 0", "GPU 1"]
    assert user.gpu_options.visible_device_list == "", "the trial's own object is not changed"


def test_without_slots_there_is_no_gpu(chosen: list[Any]) -> None:
    devices.set_visible_gpu(context(0, slots=0))
    assert chosen == [[]]
    assert devices.make_session_config(tf.compat.v1.ConfigProto(), context(0, slots=0)).device_count["GPU"] == 0


def test_more_slots_than_gpus_are_refused(chosen: list[Any]) -> None:
    with pytest.raises(InvalidTrial, match="slot 2 of this machine has no GPU: there are only 2"):
        devices.set_visible_gpu(context(2, slots=3))
