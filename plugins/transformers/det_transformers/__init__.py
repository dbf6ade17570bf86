"""Callback with which the ``Trainer`` of Hugging Face reports to det, and resumes exactly.

The library registers no plugin. A script passes `DetCallback` to its ``Trainer``.
"""

from __future__ import annotations

from det_transformers._callback import DetCallback

__all__ = ["DetCallback"]

__version__ = "0.1.0"
