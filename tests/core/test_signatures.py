"""Public names of the Core API that scripts call, with the order and the defaults of their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import det_core
from det_core import core

REQUIRED = inspect.Parameter.empty

# Defaults by class, method and argument. Arguments after "*" are keyword-only.
DOCUMENTED: dict[str, dict[str, dict[str, Any]]] = {
    "DistributedContext": {
        "__init__": {
            "*": None,
            **dict.fromkeys(("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"), REQUIRED),
            "chief_ip": None,
            "pub_port": 12360,
            "pull_port": 12376,
            "port_offset": 0,
            "force_tcp": False,
        },
        "from_horovod": {"hvd": REQUIRED, "chief_ip": None},
        "from_deepspeed": {"chief_ip": None},
        "from_torch_distributed": {"chief_ip": None},
        "get_rank": {},
        "get_local_rank": {},
        "get_size": {},
        "get_num_agents": {},
        "gather": {"stuff": REQUIRED},
        "gather_local": {"stuff": REQUIRED},
        "allgather": {"stuff": REQUIRED},
        "allgather_local": {"stuff": REQUIRED},
        "broadcast": {"stuff": REQUIRED},
        "broadcast_local": {"stuff": None},
    },
    "CheckpointContext": {
        "upload": {"ckpt_dir": REQUIRED, "metadata": None, "*": None, "shard": False, "selector": None},
        "download": {
            "storage_id": REQUIRED,
            "ckpt_dir": REQUIRED,
            "download_mode": "LOCAL_WORKERS_SHARE_DOWNLOAD",
            "*": None,
            "selector": None,
        },
        "get_metadata": {"storage_id": REQUIRED},
        "store_path": {"metadata": None, "*": None, "shard": False},
        "restore_path": {
            "storage_id": REQUIRED,
            "download_mode": "LOCAL_WORKERS_SHARE_DOWNLOAD",
            "*": None,
            "selector": None,
        },
        "delete": {"storage_id": REQUIRED},
    },
    "PreemptContext": {"should_preempt": {"auto_ack": True}, "acknowledge_preemption_signal": {}},
    "TrainContext": {
        "set_status": {"status": REQUIRED},
        "report_training_metrics": {"steps_completed": REQUIRED, "metrics": REQUIRED, "batch_metrics": None},
        "report_validation_metrics": {"steps_completed": REQUIRED, "metrics": REQUIRED},
        "report_metrics": {"group": REQUIRED, "steps_completed": REQUIRED, "metrics": REQUIRED},
        "get_tensorboard_path": {},
        "upload_tensorboard_files": {"selector": ..., "mangler": ...},
        "report_early_exit": {"reason": REQUIRED},
        "get_experiment_best_validation": {},
        "report_progress": {"progress": REQUIRED},
        "set_metadata": {"metadata": REQUIRED},
        "get_metadata": {},
    },
    "SearcherContext": {
        "operations": {"searcher_mode": "WORKERS_ASK_CHIEF", "auto_ack": True},
        "acknowledge_out_of_ops": {},
        "get_configured_units": {},
    },
    "SearcherOperation": {
        "report_progress": {"length": REQUIRED},
        "report_completed": {"searcher_metric": REQUIRED},
    },
    "ProfilerContext": {"on": {"sampling_interval": 1, "samples_per_report": 10}, "off": {}},
    "ExperimentalCoreContext": {
        "report_task_using_checkpoint": {"checkpoint": REQUIRED},
        "report_task_using_model_version": {"model_version": REQUIRED},
    },
}
ENUMS = {
    "DownloadMode": {
        "LocalWorkersShareDownload": "LOCAL_WORKERS_SHARE_DOWNLOAD",
        "NoSharedDownload": "NO_SHARED_DOWNLOAD",
    },
    "EarlyExitReason": {
        "INVALID_HP": "EXITED_REASON_INVALID_HP",
        "USER_REQUESTED_STOP": "EXITED_REASON_USER_REQUESTED_STOP",
    },
    "PreemptMode": {
        "WorkersAskChief": "WORKERS_ASK_CHIEF",
        "ChiefOnly": "CHIEF_ONLY",
        "WorkersAskMaster": "WORKERS_ASK_MASTER",
    },
    "SearcherMode": {"WorkersAskChief": "WORKERS_ASK_CHIEF", "ChiefOnly": "CHIEF_ONLY"},
    "TensorboardMode": {"AUTO": "AUTO", "MANUAL": "MANUAL"},
    "Unit": {"BATCHES": "batches", "RECORDS": "records", "EPOCHS": "epochs"},
}
METHODS = [(name, method) for name, methods in DOCUMENTED.items() for method in methods]


def arguments(function: Any) -> Iterator[tuple[str, Any]]:
    keyword_only = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            yield "*", None
        default = parameter.default
        yield parameter.name, ... if callable(default) and default is not REQUIRED else default


@pytest.mark.parametrize(("name", "method"), METHODS)
def test_methods_have_the_documented_arguments(name: str, method: str) -> None:
    expected = DOCUMENTED[name][method]
    found = dict(list(arguments(getattr(getattr(core, name), method)))[: len(expected)])  # more may follow
    assert found == expected
    assert list(found) == list(expected)


@pytest.mark.parametrize("name", ENUMS)
def test_enums_have_the_documented_members(name: str) -> None:
    assert {member.name: member.value for member in getattr(core, name)} == ENUMS[name]


def test_init_and_the_context_have_the_documented_names() -> None:
    found = dict(arguments(core.init))
    assert list(found)[:5] == ["*", "distributed", "checkpoint_storage", "preempt_mode", "tensorboard_mode"]
    assert found["preempt_mode"] is core.PreemptMode.WorkersAskChief
    assert found["tensorboard_mode"] is core.TensorboardMode.AUTO
    members = {"checkpoint", "distributed", "preempt", "train", "searcher", "info", "experimental", "profiler"}
    assert members <= {*core.Context.__dataclass_fields__, *vars(core.Context)}


def test_the_package_exports_all_documented_names() -> None:
    offered = {*DOCUMENTED, *ENUMS, "Context", "init"}
    assert offered <= set(core.__all__)
    assert {"core", "InvalidHP", "ClusterInfo", "TrialInfo", "RendezvousInfo", "get_cluster_info"} <= set(
        det_core.__all__
    )
