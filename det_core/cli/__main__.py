"""Entry point of ``python -m det_core.cli``, which is the same as ``det``."""

from __future__ import annotations

import sys

from det_core.cli import main

sys.exit(main())
