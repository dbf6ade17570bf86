"""Fixtures for the slots of a machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from det_core.launch import gpu_slots

DESCRIPTION = """Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 151
GPU UUID: \t {uuid}
Bus Type: \t PCIe
Bus Location: \t {address}
Device Minor: \t {minor}
"""
"""Text that the driver shows for a GPU."""


@pytest.fixture
def install_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give this process GPUs with these minor numbers, of which some are described, as ``minor=(address, uuid)``."""
    devices, driver = tmp_path / "dev", tmp_path / "gpus"

    def install(*minors: int, **described: tuple[str, str]) -> None:
        devices.mkdir()
        for name in (*minors, "ctl", "-uvm", "-caps"):
            (devices / f"nvidia{name}").touch()
        for minor, (address, uuid) in described.items():
            (driver / address).mkdir(parents=True)
            text = DESCRIPTION.format(uuid=uuid, address=address, minor=minor.removeprefix("minor_"))
            (driver / address / "information").write_text(text)

    monkeypatch.setattr(gpu_slots, "_DEVICES", devices)
    monkeypatch.setattr(gpu_slots, "_DRIVER", driver)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return install
