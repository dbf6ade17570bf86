"""Manifests of pods contain what the config says, and no more."""

from __future__ import annotations

import json
from typing import Any

import pytest
from det_kubernetes._config import ClaimedKeys, KubernetesConfig
from det_kubernetes._pod_specs import CONTAINER, PodOptions, build_pods, label_value, pod_name

from det_core.config import parse_config
from det_core.errors import ConfigError

IMAGE = "registry.example.com/det:1"
OLD_MANIFEST = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "mine", "labels": {"team": "vision", "det/trial": "other"}, "annotations": {"a": "b"}},
    "spec": {
        "restartPolicy": "Always",
        "serviceAccountName": "bucket-writer",
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "volumes": [{"name": "data", "hostPath": {"path": "/data"}}],
        "containers": [
            {"name": "sidecar", "image": "alpine:3"},
            {
                "name": CONTAINER,
                "args": ["ignored"],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "resources": {"limits": {"memory": "9Gi", "nvidia.com/gpu": 5}, "requests": {"cpu": "250m"}},
            },
        ],
    },
}
"""Manifest as configs of Determined AI have it."""


def build(nodes: int = 1, **options: Any) -> list[dict[str, Any]]:
    chosen = PodOptions(**{"image": IMAGE, "manifest": {}, "resources": {"cpu": "2"}, **options})
    return build_pods("s-exp-3-trial-7", nodes, chosen, runner="r", experiment="s-exp-3", launch="abc", run=2)


def own_container(pod: dict[str, Any]) -> dict[str, Any]:
    (container,) = [one for one in pod["spec"]["containers"] if one["name"] == CONTAINER]
    return container


def test_a_manifest_of_an_old_config_is_merged() -> None:
    (pod,) = build(manifest=OLD_MANIFEST, resources={"nvidia.com/gpu": "2", "cpu": "4", "memory": "64Gi"})
    metadata, spec, container = pod["metadata"], pod["spec"], own_container(pod)
    assert metadata["annotations"] == {"a": "b"}
    assert metadata["labels"]["team"] == "vision"
    assert metadata["labels"]["det/trial"] == "s-exp-3-trial-7"
    assert [one["name"] for one in spec["containers"]] == [CONTAINER, "sidecar"]
    assert spec["tolerations"] == OLD_MANIFEST["spec"]["tolerations"]  # type: ignore[index]
    assert spec["automountServiceAccountToken"] is True
    assert spec["restartPolicy"] == "Never"
    assert {"name": "data", "mountPath": "/data"} in container["volumeMounts"]
    assert "args" not in container
    assert container["resources"] == {
        "limits": {"nvidia.com/gpu": "2", "memory": "9Gi"},
        "requests": {"nvidia.com/gpu": "2", "cpu": "250m", "memory": "64Gi"},
    }
    assert OLD_MANIFEST["spec"]["containers"][1]["args"] == ["ignored"], "the config was changed"  # type: ignore[index]


def test_nodes_differ_in_name_and_index() -> None:
    first, second = build(2)
    assert [one["metadata"]["name"] for one in (first, second)] == [
        "det-s-exp-3-trial-7-abc-0",
        "det-s-exp-3-trial-7-abc-1",
    ]
    assert [one["metadata"]["labels"].pop("det/node") for one in (first, second)] == ["0", "1"]
    del first["metadata"]["name"], second["metadata"]["name"]
    assert first == second


@pytest.mark.parametrize(
    ("manifest", "shm_size", "expected"),
    [
        ({}, None, {"medium": "Memory"}),
        ({}, "4Gi", {"medium": "Memory", "sizeLimit": "4Gi"}),
        (
            {"spec": {"containers": [{"name": CONTAINER, "volumeMounts": [{"name": "x", "mountPath": "/dev/shm"}]}]}},
            "4Gi",
            None,
        ),
    ],
    ids=["default", "size", "mounted by the user"],
)
def test_shared_memory_is_mounted_once(manifest: dict[str, Any], shm_size: str | None, expected: object) -> None:
    (pod,) = build(manifest=manifest, shm_size=shm_size)
    mounts = [one["name"] for one in own_container(pod)["volumeMounts"] if one["mountPath"] == "/dev/shm"]
    volumes = {one["name"]: one["emptyDir"] for one in pod["spec"]["volumes"]}
    assert [volumes.get(name) for name in mounts] == [expected]


def test_capabilities_and_pulls_are_those_of_the_config() -> None:
    (pod,) = build(capabilities={"add": ("SYS_PTRACE",), "drop": ()}, always_pull=True, priority_class="batch")
    container = own_container(pod)
    assert container["securityContext"] == {"capabilities": {"add": ["SYS_PTRACE"]}}
    assert container["imagePullPolicy"] == "Always"
    assert pod["spec"]["priorityClassName"] == "batch"


@pytest.mark.parametrize("key", ["s-exp-3-trial-7", "Suite_of.a-Test", "x" * 100, "9-" * 40])
def test_names_and_labels_are_valid(key: str) -> None:
    name, label = pod_name(key, "abcdef", 12), label_value(key)
    assert len(name) <= 63 and name.endswith("-abcdef-12") and name.replace("-", "a").isalnum() and name.islower()
    assert len(label) <= 63 and label[0].isalnum() and label[-1].isalnum()


def test_long_labels_differ() -> None:
    assert label_value("x" * 70) != label_value("x" * 71)


def parse(launcher: dict[str, Any] | None = None, **blocks: Any) -> Any:
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 1}}
    block = {"type": "kubernetes", **(launcher or {})}
    return parse_config(
        {"entrypoint": "true", "searcher": searcher, "launcher": block, "environment": {"image": IMAGE}, **blocks}
    )


def test_resources_of_slots_are_added_up() -> None:
    config = KubernetesConfig.model_validate({"resources": {"cpu": 0.5, "memory": "1.5Gi", "nvidia.com/gpu": 1}})
    assert config.resources_of(3) == {"cpu": "1.5", "memory": "4.5Gi", "nvidia.com/gpu": "3"}
    assert [config.cpus_of(slots) for slots in (1, 3)] == [1, 2]
    assert KubernetesConfig.model_validate({"resources": {"cpu": "500m"}}).cpus_of(3) == 2
    assert config.device() == "cuda"
    assert KubernetesConfig().device() == "cpu"


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ({"launcher": {"resources": {"cpu": "many"}}}, "expected an amount such as 4, 500m or 16Gi, got 'many'"),
        ({"launcher": {"resources": {"nvidia.com/gpu": 4}}}, "a slot is one GPU; write 1"),
        ({"environment": {}}, "pods need an image; set environment.image"),
        ({"environment": {"image": IMAGE, "pod_spec": {"spec": {"hostPID": True}}}}, "spec.hostPID cannot be used"),
        ({"environment": {"image": IMAGE, "pod_spec": {"nodeSelector": {}}}}, "expected a pod with metadata and spec"),
        ({"resources": {"shm_size": "lots"}}, "a size such as 2g or 512MiB, got 'lots'"),
    ],
)
def test_wrong_values_are_refused_with_the_config(blocks: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        parse(**blocks)


@pytest.mark.parametrize(
    ("given", "expected"), [(1 << 30, "1073741824"), ("2g", "2Gi"), ("512 MB", "512Mi"), ("64k", "64Ki"), (None, None)]
)
def test_sizes_are_those_of_docker(given: object, expected: str | None) -> None:
    claimed = ClaimedKeys.model_validate({"environment": {"image": IMAGE}, "resources": {"shm_size": given}})
    assert claimed.resources.shm_size == expected


def test_an_image_may_depend_on_the_device() -> None:
    environment = parse(environment={"image": {"cpu": "a", "gpu": "b"}}).environment
    claimed = ClaimedKeys.model_validate({"environment": {"image": environment.image}}).environment
    assert [claimed.image_for(device) for device in ("cpu", "cuda")] == ["a", "b"]


def test_old_keys_about_containers_are_not_ignored() -> None:
    environment = {
        "image": IMAGE,
        "force_pull_image": True,
        "pod_spec": OLD_MANIFEST,
        "add_capabilities": ["SYS_PTRACE"],
    }
    notices = parse(environment=environment, resources={"shm_size": "1g"}).notices
    assert not [notice for notice in notices if "ignored" in notice], notices


def test_old_keys_without_a_meaning_here_are_named() -> None:
    blocks = {
        "resources": {"resource_pool": "a100"},
        "bind_mounts": [{"host_path": "/data", "container_path": "/data"}],
    }
    environment = {"image": IMAGE, "registry_auth": {"username": "u"}}
    notices = parse(environment=environment, **blocks).notices
    ignored = "these keys have no effect and are ignored: "
    (notice,) = [notice for notice in notices if notice.startswith(ignored)]
    expected = {"bind_mounts", "environment.registry_auth", "resources.resource_pool"}
    assert set(notice.removeprefix(ignored).split(", ")) == expected


def test_a_manifest_is_json() -> None:
    json.dumps(build(2, manifest=OLD_MANIFEST))
