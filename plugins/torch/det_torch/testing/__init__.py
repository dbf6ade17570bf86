"""Compliance suite for adapters of distributed backends to `PyTorchTrial`.

A test file with these lines tests an adapter (`docs/backends.md`)::

    class TestMyAdapter(AdapterCompliance):
        backend = "mine"
"""

from __future__ import annotations

from det_torch.testing._campaign import Campaign
from det_torch.testing._hosts import Hosts
from det_torch.testing._leaving import Leaving
from det_torch.testing._training import Training

__all__ = ["AdapterCompliance"]


class AdapterCompliance(Training, Leaving, Campaign, Hosts):
    """Compliance tests of an adapter. Derive from this class and set ``backend``.

    These attributes describe the needs and limits of the adapter: ``options``, ``tolerance``, ``exact``,
    ``compresses``, ``clips``, ``resizes``, ``full_weights``, ``hosts``, ``limit``, ``expected_failures``. The method
    `weights` reads checkpoints. Redefining a test is an error.
    """
