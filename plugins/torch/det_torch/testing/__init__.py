"""Compliance suite for adapters of distributed backends to `PyTorchTrial`.

A test file with these lines tests an adapter (`docs/backends.md`)::

    class TestMyAdapter(AdapterCompliance):
        backend = "mine"
"""

from __future__ import annotations

from det_torch.testing._random_kills import RandomKillsSuite
from det_torch.testing._two_hosts import TwoHostsSuite
from det_torch.testing.interruptions import InterruptionSuite
from det_torch.testing.slot_equivalence import SlotEquivalenceSuite

__all__ = ["AdapterCompliance"]


class AdapterCompliance(SlotEquivalenceSuite, InterruptionSuite, RandomKillsSuite, TwoHostsSuite):
    """Compliance tests of an adapter. Derive from this class and set ``backend``.

    These attributes describe the needs and limits of the adapter: ``options``, ``tolerance``, ``exact``,
    ``compresses``, ``clips``, ``resizes``, ``full_weights``, ``hosts``, ``limit``, ``expected_failures``. The method
    `weights` reads checkpoints. Redefining a test is an error.
    """
