"""Compliance suite for adapters to Estimators and Keras."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if find_spec("tensorflow") is None:
    pytest.skip("TensorFlow is not installed; it needs Python 3.10 or 3.11", allow_module_level=True)

from det_tensorflow.testing import AdapterCompliance

pytestmark = pytest.mark.usefixtures("horovod")


class TestHorovod(AdapterCompliance):
    backend = "horovod"
