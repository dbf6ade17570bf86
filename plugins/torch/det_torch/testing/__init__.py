"""The compliance suite for adapters of distributed backends to `PyTorchTrial`.

A file with these lines tests yours (`docs/backends.md`)::

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
    """Derive from it, and say ``backend``.

    Other attributes say what the adapter needs or cannot do: ``options``, ``tolerance``, ``exact``, ``compresses``,
    ``clips``, ``resizes``, ``full_weights``, ``hosts``, ``limit``, ``expected_failures``; the method `weights` reads
    checkpoints. Redefining a test is an error.
    """
