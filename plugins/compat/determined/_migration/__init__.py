"""Check of an old model directory, which reads its files without running them."""

from __future__ import annotations
