"""What det's frameworks for TensorFlow share. A library, not a plugin: it registers nothing."""

from __future__ import annotations

__version__ = "0.1.0"
