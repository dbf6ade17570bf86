"""``python3 -m determined.launch.horovod SCRIPT [ARGUMENT...]``, or ``--trial MODULE:CLASS``."""

from __future__ import annotations

import sys

from determined.launch._command import run_launcher

if __name__ == "__main__":
    sys.exit(run_launcher("horovod", sys.argv[1:]))
