"""Compliance suite for adapters of distributed backends to TensorFlow. It needs det-estimator, det-keras and pytest.

A test file with these lines tests your adapter (see `docs/backends.md`)::

    class TestMyAdapter(AdapterCompliance):
        backend = "mine"
"""

from __future__ import annotations

from det_tensorflow.testing._suite import AdapterCompliance

__all__ = ["AdapterCompliance"]
