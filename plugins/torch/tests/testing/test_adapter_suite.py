"""The suite for adapters notices defects, the example's adapter passes it, and docs/backends.md is up to date."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from det_torch.testing import AdapterCompliance
from det_torch.testing.slot_equivalence import SlotEquivalenceSuite

from det_core.plugins import plugin_registry
from tests.testing.defects import list_tests, make_defect_tests
from tests.testing.plugin_sites import register_broken, register_example

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
    suite = [base for base in AdapterCompliance.__mro__ if base.__module__.startswith(("det_torch", "det_core"))]
    declared = {name for base in suite for name in vars(base).get("__annotations__", {})}
    listed = re.findall(r"^- `(\w+)`", DOCUMENT.read_text(), re.MULTILINE)
    assert set(listed) == declared | {"weights"}
