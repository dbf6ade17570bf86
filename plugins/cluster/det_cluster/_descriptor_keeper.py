"""Process that runs a command and keeps its own descriptors open until the command ends.

``python _descriptor_keeper.py COMMAND...``. Some commands, such as ssh, close at their start what they inherit. SIGTERM
is passed on to the command.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from types import FrameType


def main(command: list[str]) -> int:
    """Run the command, and return its exit code."""
    stopped = False
    process: subprocess.Popen[bytes] | None = None

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        if process:
            process.terminate()

    signal.signal(signal.SIGTERM, stop)
    try:
        process = subprocess.Popen(command, close_fds=False)
    except OSError as error:
        print(f"cannot start {command[0]}: {error}", file=sys.stderr)  # noqa: T201
        return 127
    if stopped:  # before there was a process
        process.terminate()
    code = process.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
