"""Server of det, with web pages for experiments and the tracking store over HTTPS.

``det server`` starts it.
"""

from __future__ import annotations

__version__ = "0.1.0"
