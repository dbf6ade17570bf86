"""Names of GPUs, on which all processes of a host agree."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from det_core.launch import gpu_slots
from det_core.launch.gpu_slots import count_gpus, gpu_variables, local_slot_names, visible_gpus

Install = Callable[..., None]
A, B = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "GPU-0d1e8a7b-0000-4106-c12f-20bd9faed9f6"


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["0", "1", "2"]),
        ("2,1", ["2", "1"]),
        ("", []),
        ("-1", []),
        ("0,-1,2", ["0"]),
        ("NoDevFiles", []),
        ("GPU-a", ["GPU-a"]),
        ("1,1", ["1"]),
    ],
)
def test_only_visible_gpus_are_used(
    visible: str | None, expected: list[str], monkeypatch: pytest.MonkeyPatch, install_gpus: Install
) -> None:
    install_gpus(0, 1, 2)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [gpu.visible_as for gpu in visible_gpus()] == expected
    assert count_gpus() == len(expected)
    variables = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(expected)}
    assert gpu_variables(range(len(expected))) == (variables if expected else {})


@pytest.mark.parametrize(
    ("visible", "slots"),
    [
        ("0,1", ["gpu-1", "gpu-0"]),
        (f"{B},{A}", ["gpu-0", "gpu-1"]),
        ("GPU-8932,GPU-0d", ["gpu-1", "gpu-0"]),
        ("GPU-", ["gpu-GPU-"]),
        ("7", ["gpu-7"]),
        ("MIG-GPU-8932f937/1/0", ["gpu-MIG-GPU-8932f937_1_0"]),
    ],
)
def test_an_index_and_a_uuid_name_the_same_gpu(
    visible: str, slots: list[str], monkeypatch: pytest.MonkeyPatch, install_gpus: Install
) -> None:
    """Indices follow the PCI addresses, here against the order of the minor numbers."""
    install_gpus(0, 1, minor_0=("0000:65:00.0", B), minor_1=("0000:18:00.0", A))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert local_slot_names(9) == slots


def test_a_container_with_some_gpus_names_them_as_the_host_does(install_gpus: Install) -> None:
    install_gpus(3, minor_0=("0000:18:00.0", A), minor_3=("0000:65:00.0", B))
    (gpu,) = visible_gpus()
    assert (gpu.slot, gpu.visible_as, gpu.model) == ("gpu-3", "0", "NVIDIA H100 80GB HBM3")


@pytest.mark.parametrize("lacks", ["/dev", "/proc/driver", "a description"])
def test_gpus_are_not_taken_for_missing_while_files_cannot_be_opened(
    install_gpus: Install, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    """Such as because too many are open."""
    install_gpus(0, 1, minor_0=("0000:65:00.0", B), minor_1=("0000:18:00.0", A))
    names = local_slot_names(9)
    place = {"/dev": gpu_slots._DEVICES, "/proc/driver": gpu_slots._DRIVER}.get(lacks)

    def refuse(path: Any, *args: Any, **options: Any) -> Any:
        if lacks == "a description" or Path(path) == place:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(path, *args, **options)

    step = (io, "open") if lacks == "a description" else (os, "listdir")
    real = getattr(*step)
    with monkeypatch.context() as scarce:
        scarce.setattr(*step, refuse)
        with pytest.raises(OSError, match="Too many open files"):
            local_slot_names(9)
    (gpu_slots._DRIVER / "0000:18:00.0/information").unlink()  # it is just being removed
    assert (names, local_slot_names(9)) == (["gpu-1", "gpu-0"], ["gpu-0", "gpu-1"])


def test_a_machine_without_gpus_has_slots_of_the_cpu(install_gpus: Install) -> None:
    install_gpus()
    assert (local_slot_names(2), gpu_variables([0]), count_gpus()) == (["cpu-0", "cpu-1"], {}, 0)
