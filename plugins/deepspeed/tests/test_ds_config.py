"""DeepSpeed's config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from det_deepspeed._ds_config import complete_ds_config, merge_ds_config, read_ds_config
from det_deepspeed._options import DeepSpeedOptions

from det_core.errors import InvalidExperimentException

PLACE: dict[str, Any] = {"per_slot": 4, "slots": 2, "aggregation": 3, "compression": False, "device": "cpu"}


def test_blocks_are_merged_and_anything_else_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = {"zero_optimization": {"stage": 1, "overlap_comm": False}, "tags": [1, 2], "bf16": {"enabled": True}}
    over = {"zero_optimization": {"stage": 2}, "tags": [3], "bf16": None, "steps_per_print": 5}
    expected = {
        "zero_optimization": {"stage": 2, "overlap_comm": False}, "tags": [3], "bf16": None, "steps_per_print": 5,
    }  # fmt: skip
    assert merge_ds_config(base, over) == expected
    monkeypatch.chdir(tmp_path)
    Path("ds.json").write_text(json.dumps(base))
    assert read_ds_config(DeepSpeedOptions(ds_config=Path("ds.json"), overwrites=over)) == expected
    assert read_ds_config(DeepSpeedOptions(ds_config=base, overwrites=over)) == expected
    assert base["zero_optimization"] == {"stage": 1, "overlap_comm": False}


@pytest.mark.parametrize("content", [None, "{", "[1]"])
def test_a_file_without_a_json_object_is_named(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    if content:
        path.write_text(content)
    with pytest.raises(InvalidExperimentException, match=r"distributed\.ds_config: .*ds\.json .*JSON"):
        read_ds_config(DeepSpeedOptions(ds_config=path))


def test_batch_sizes_come_from_the_experiment() -> None:
    sizes = {"train_batch_size": 24, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 3}
    config = complete_ds_config({**sizes, "gradient_clipping": 0.5}, **PLACE)
    assert config["train_micro_batch_size_per_gpu"] == 4
    assert (config["train_batch_size"], config["gradient_accumulation_steps"]) == (8, 1)  # det counts the batches
    assert config["gradient_clipping"] == 0.5


def test_gradients_are_clipped_and_compressed_only_where_asked() -> None:
    config = complete_ds_config({}, **PLACE)
    assert config["gradient_clipping"] == 0
    assert "communication_data_type" not in config
    assert complete_ds_config({}, **{**PLACE, "compression": True})["communication_data_type"] == "fp16"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"train_batch_size": 32}, "train_batch_size: 32, but the experiment sets it to 24 .*auto"),
        ({"gradient_accumulation_steps": 1}, "gradient_accumulation_steps: 1, .* 3 "),
        ({"optimizer": {"params": {"lr": "auto"}}}, r"optimizer\.params\.lr: auto"),
        ({"bf16": {"enabled": True}}, "stage 0"),
        ({"zero_optimization": {"stage": 1}, "fp16": {"enabled": True}}, "needs a GPU"),
        ({"zero_optimization": {"stage": 1}, "data_types": {"grad_accum_dtype": "fp32"}}, "stage: 2"),
        ({"torch_autocast": {"enabled": True, "dtype": "float16"}}, "bfloat16"),
        ({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}}, "device: cpu"),
        ({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}, "aggregation_frequency"),
    ],
)
def test_unsupported_settings_are_errors_with_an_alternative(config: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidExperimentException, match=said):
        complete_ds_config(config, **PLACE)
