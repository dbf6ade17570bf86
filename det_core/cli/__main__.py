"""``python -m det_core.cli`` is ``det``."""

from __future__ import annotations

import sys

from det_core.cli import main

sys.exit(main())
