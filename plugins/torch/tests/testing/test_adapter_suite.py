"""The suite for adapters notices defects, the example's adapter passes it, and docs/backends.md is up to date."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from det_torch import PyTorchTrial
from det_torch._adapter import PyTorchAdapter
from det_torch.testing import AdapterCompliance
from det_torch.testing.code.model_def import Adversaries, OneModel, table
from det_torch.testing.slot_equivalence import SlotEquivalenceSuite

from det_core.plugins import plugin_registry
from plugins.testing.tests.defects import list_tests, make_defect_tests
from plugins.testing.tests.plugin_sites import register_broken, register_example

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[4]
EXAMPLE, DOCUMENT = ROOT / "examples" / "backend_plugin", ROOT / "docs" / "backends.md"
sys.path[:0] = [str(HERE), str(EXAMPLE)]

import broken_adapters  # noqa: E402
import broken_backends  # noqa: E402
import test_ring_torch  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def _registered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Register the example and the broken backends with this process and those that it starts."""
    site = tmp_path_factory.mktemp("site")
    register_example(site, EXAMPLE)
    register_broken(site, broken_backends.__name__)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        plugin_registry.cache_clear()
        yield
    plugin_registry.cache_clear()


def describe(adapter: type) -> dict[str, Any]:
    """Return the attributes of the suite for a broken adapter."""
    limit = {"limit": 15.0} if adapter is broken_adapters.HangsInTheEnd else {}
    return {"backend": adapter.__name__, "pytestmark": [pytest.mark.slow], **limit}


CAUGHT_BY = {getattr(broken_adapters, name): [test] for name, test in broken_backends.CAUGHT_BY.items()}
globals().update(make_defect_tests(AdapterCompliance, CAUGHT_BY, describe, integration=list_tests(AdapterCompliance)))


@pytest.mark.parametrize("trial_class", [OneModel, Adversaries])
def test_the_reducers_of_the_trials_see_every_record(trial_class: type[PyTorchTrial], make_context: Any) -> None:
    context = make_context()
    adapter = PyTorchAdapter(trial_class(context), context)
    adapter.train(12, lambda: False)  # one epoch
    reduced = adapter.reduced()
    assert reduced["seen"] == 48
    assert reduced["values"] == pytest.approx(table(48).tensors[0].sum().item())


@pytest.mark.parametrize(
    ("how", "fails"), [("raise 0 3", True), ("raise 0 4", False), ("raise 1 3", False), (None, False)]
)
def test_a_slot_fails_at_the_batch_that_the_environment_names(
    how: str | None, fails: bool, make_context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how:
        monkeypatch.setenv("FAIL", how)
    context = make_context()
    adapter = PyTorchAdapter(OneModel(context), context)
    with pytest.raises(ArithmeticError, match="rank 0 fails on purpose") if fails else nullcontext():
        adapter.train(4, lambda: False)
    assert context.current_train_batch() == (3 if fails else 4)


@pytest.mark.slow
class TestExample(SlotEquivalenceSuite):
    """The part of the suite that differs between backends."""

    backend = test_ring_torch.TestRingTorch.backend
    options = test_ring_torch.TestRingTorch.options
    compresses = test_ring_torch.TestRingTorch.compresses


@pytest.mark.slow
@pytest.mark.soak
class TestWholeExample(test_ring_torch.TestRingTorch):
    pass


def test_the_document_lists_all_attributes_of_the_class() -> None:
    suite = [base for base in AdapterCompliance.__mro__ if base.__module__.startswith(("det_torch", "det_testing"))]
    declared = {name for base in suite for name in vars(base).get("__annotations__", {})}
    listed = re.findall(r"^- `(\w+)`", DOCUMENT.read_text(), re.MULTILINE)
    assert set(listed) == declared | {"weights"}
