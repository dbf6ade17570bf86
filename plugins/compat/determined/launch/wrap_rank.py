"""``python3 -m determined.launch.wrap_rank RANK SCRIPT [ARGUMENT...]``, which labels each line of output with a rank.

det stores the rank of each line from this label.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import IO

_CHUNK = 1 << 16
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main(argv: Sequence[str]) -> int:
    """Run a command, and write its output with the label ``[rank=N]`` at the beginning of each line.

    Args:
        argv: a rank, or names of environment variables that may contain it, separated by commas, and the command.

    Returns:
        The exit code of the command, or 128 + N if signal N ended it.
    """
    parser = argparse.ArgumentParser(
        "python3 -m determined.launch.wrap_rank",
        usage="%(prog)s [-h] [--no-redirect-stdio] RANK SCRIPT [ARGUMENT...]",
        description="Label each line that a command prints with its rank.",
    )
    parser.add_argument("--no-redirect-stdio", action="store_true", help="ignored, as there are no containers")
    parser.add_argument("rank", metavar="RANK", help="a number, or environment variables to look for it: A,B")
    parser.add_argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT", help="the command to run")
    args = parser.parse_args(argv)
    rank = args.rank if args.rank.isdecimal() else _rank(args.rank.split(","))
    if rank is None:
        parser.error(f"RANK is {args.rank}, but none of these environment variables is set; expected a number")
    if not args.script:
        parser.error("expected a command after RANK, such as python3 train.py")
    return _run(args.script, f"[rank={rank}] ".encode())


def _rank(names: Sequence[str]) -> str | None:
    return next((os.environ[name] for name in names if name in os.environ), None)


def _run(command: Sequence[str], label: bytes) -> int:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)

    def forward(number: int, _: FrameType | None) -> None:
        process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        streams = ((process.stdout, sys.stdout), (process.stderr, sys.stderr))
        threads = [threading.Thread(target=_copy, args=(source, to.fileno(), label)) for source, to in streams]
        for thread in threads:
            thread.start()
        code = process.wait()
        for thread in threads:
            thread.join()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _copy(source: IO[bytes], target: int, label: bytes) -> None:
    for line in _lines(source):
        written = label + line
        while written:  # a pipe may take a part only
            written = written[os.write(target, written) :]


def _lines(source: IO[bytes]) -> Iterator[bytes]:
    """Yield complete lines as soon as they are read. A carriage return, as in progress bars, ends a line, too."""
    rest = b""
    while data := source.read(_CHUNK):
        *lines, rest = (rest + data).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            yield line + b"\n"
        if len(rest) >= _CHUNK:
            yield rest + b"\n"
            rest = b""
    if rest:
        yield rest + b"\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
