"""Compliance suite for backends."""

from __future__ import annotations

import pytest
from det_testing.backend import BackendCompliance

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("horovod")]


class TestHorovod(BackendCompliance):
    plugin = "det_horovod.plugin"
    joins = """
import horovod.torch as hvd
hvd.init()
hvd.barrier()
"""
