"""The compliance suite for adapters of distributed backends to TensorFlow. Needs det-estimator, det-keras and pytest.

A file with these lines tests yours (`docs/backends.md`)::

    class TestMyAdapter(AdapterCompliance):
        backend = "mine"
"""

from __future__ import annotations

from det_tensorflow.testing._suite import AdapterCompliance

__all__ = ["AdapterCompliance"]
