"""DeepSpeed's config, made of the user's settings and those of the experiment."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from det_core.errors import InvalidExperimentException
from det_deepspeed._options import DeepSpeedOptions

_AUTO = (None, "auto")


def read_ds_config(options: DeepSpeedOptions) -> dict[str, Any]:
    """Return ``ds_config``, with ``overwrites`` merged into it.

    Raises:
        InvalidExperimentException: the file of ``ds_config`` is missing, or is not a JSON object.
    """
    given = options.ds_config
    return merge_ds_config(_loaded(given) if isinstance(given, Path) else given, options.overwrites)


def merge_ds_config(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``over`` merged into it. Blocks are merged recursively, and other values are replaced."""
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(base.get(key), Mapping)
        result[key] = merge_ds_config(base[key], value) if both else value
    return result


def complete_ds_config(
    config: Mapping[str, Any], *, per_slot: int, slots: int, aggregation: int, compression: bool, device: str
) -> dict[str, Any]:
    """Return the complete config of an engine.

    Args:
        config: the user's config, from `read_ds_config`.
        per_slot: the number of records per batch on each slot, >= 1.
        slots: the number of slots, >= 1.
        aggregation: the number of batches per step of an optimizer, >= 1.
        compression: whether gradients may be exchanged as float16.
        device: the type of the torch device.

    Raises:
        InvalidExperimentException: the config contradicts these values, or sets something that is not supported.
    """
    decided = {
        "train_micro_batch_size_per_gpu": per_slot,
        "gradient_accumulation_steps": aggregation,
        "train_batch_size": per_slot * slots * aggregation,
    }
    _check_sizes(config, decided)
    _check_auto(config, decided)
    for applies, problem in _PROBLEMS:
        if applies(config, aggregation, device):
            raise InvalidExperimentException(problem)
    return {
        "zero_allow_untested_optimizer": True,  # because the trial chooses the optimizer
        "zero_force_ds_cpu_optimizer": False,
        "gradient_clipping": 0.0,  # DeepSpeed's default is 1
        **({"communication_data_type": "fp16"} if compression else {}),
        **config,
        **decided,
        # det decides when optimizers step, and divides aggregated gradients.
        "managed_gradient_accumulation": False,
        "gradient_accumulation_steps": 1,
        "train_batch_size": per_slot * slots,
    }


def zero_stage(config: Mapping[str, Any]) -> int:
    """Return the stage of ZeRO, 0 to 3."""
    return int(_block(config, "zero_optimization").get("stage", 0))


def _loaded(path: Path) -> dict[str, Any]:
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidExperimentException(
            f"distributed.ds_config: {path} cannot be read: {error}; expected the path of a JSON file, relative to the "
            "experiment's directory"
        ) from error
    if not isinstance(loaded, dict):
        raise InvalidExperimentException(f"distributed.ds_config: {path} contains {loaded!r}; expected a JSON object")
    return loaded


def _check_sizes(config: Mapping[str, Any], decided: Mapping[str, int]) -> None:
    for key, expected in decided.items():
        if config.get(key) not in (*_AUTO, expected):
            raise InvalidExperimentException(
                f"ds_config has {key}: {config[key]}, but the experiment sets it to {expected} by the hyperparameter "
                "global_batch_size, resources.slots_per_trial and optimizations.aggregation_frequency; change these, "
                f"and remove {key} from ds_config or set it to auto"
            )


def _check_auto(config: Mapping[str, Any], decided: Mapping[str, int], place: str = "") -> None:
    for key, value in config.items():
        if isinstance(value, Mapping):
            _check_auto(value, {}, f"{place}{key}.")
        elif value == "auto" and key not in decided:
            raise InvalidExperimentException(
                f"ds_config has {place}{key}: auto, but det does not fill it in; set a value, or remove the key to use "
                f"DeepSpeed's default (auto is for {', '.join(decided) or 'batch sizes'})"
            )


def _block(config: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    for key in path:
        config = config.get(key) or {}
    return config


def has_enabled_block(config: Mapping[str, Any], *names: str) -> bool:
    """Return whether at least one of these blocks is enabled."""
    return any(_block(config, name).get("enabled") for name in names)


def _offloads(config: Mapping[str, Any], *devices: str) -> bool:
    return _block(config, "zero_optimization", "offload_optimizer").get("device") in devices


def _keeps_gradients_elsewhere(config: Mapping[str, Any]) -> bool:
    separate = _block(config, "data_types").get("grad_accum_dtype")
    return bool(separate) or _offloads(config, "cpu") or has_enabled_block(config, "fp16")


_PROBLEMS: tuple[tuple[Callable[[Mapping[str, Any], int, str], bool], str], ...] = (
    (
        lambda config, _, __: zero_stage(config) == 0 and has_enabled_block(config, "fp16", "bf16"),
        "ds_config enables fp16 or bf16 at ZeRO stage 0, where det cannot save DeepSpeed's float32 weights; "
        "set zero_optimization: {stage: 1}",
    ),
    (
        lambda config, _, device: has_enabled_block(config, "fp16") and device != "cuda",
        "ds_config enables fp16, which needs a GPU; enable bf16 instead",
    ),
    (
        lambda config, _, __: _block(config, "torch_autocast").get("dtype") in ("float16", "fp16", "half"),
        "ds_config has torch_autocast with float16, which needs loss scaling; set its dtype to bfloat16",
    ),
    (
        lambda config, _, __: zero_stage(config) == 1 and bool(_block(config, "data_types").get("grad_accum_dtype")),
        "ds_config has data_types.grad_accum_dtype, which det supports from ZeRO stage 2 on; "
        "set zero_optimization: {stage: 2}",
    ),
    (
        lambda config, _, __: _offloads(config, "nvme"),
        "ds_config offloads the optimizer to nvme, where det cannot save it; set offload_optimizer: {device: cpu}",
    ),
    (
        lambda config, aggregation, _: aggregation > 1 and _keeps_gradients_elsewhere(config),
        "optimizations.aggregation_frequency is more than 1, but with fp16, offload_optimizer or "
        "data_types.grad_accum_dtype in ds_config, det cannot save gradients during an aggregation; remove either",
    ),
)
