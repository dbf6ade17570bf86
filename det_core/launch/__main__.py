"""``python -m det_core.launch BACKEND [OPTIONS] -- SCRIPT [ARGUMENT...]``: a script on several processes.

The runner starts the workers of trial classes with it, and people start scripts on the Core API. On several nodes it
is started once on each.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from det_core.config import assigned
from det_core.errors import ConfigError
from det_core.launch.by_hand import start

_USAGE = """python -m det_core.launch BACKEND [--slots N] [--option KEY=VALUE]... -- SCRIPT [ARGUMENT...]
       python -m det_core.launch BACKEND --hosts A,B --node I --port P ... -- SCRIPT [ARGUMENT...]   on A, and on B"""


def main(argv: Sequence[str]) -> int:
    """Start the workers and wait for them; the exit code."""
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        options = assigned(args.option, "--option")
    except ConfigError as error:
        parser.error(str(error))
    place = {"hosts": args.hosts, "node": args.node, "slots": args.slots, "port": args.port}
    return start(args.backend, [sys.executable, *args.script], options, **place)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m det_core.launch", usage=_USAGE, description="Start workers.")
    parser.add_argument("backend", metavar="BACKEND", help="a distributed backend; `det plugins list` shows them")
    parser.add_argument("--slots", type=int, metavar="N", help="workers on each node; default: the task's, or the GPUs")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the backend, as under `distributed` in a config: key.key=YAML",
    )
    parser.add_argument(
        "--hosts", type=lambda text: text.split(","), metavar="A,B", help="all nodes, the chief's first"
    )
    parser.add_argument("--node", type=int, metavar="I", help="which of them this is, from 0")
    parser.add_argument("--port", type=int, metavar="P", help="free on the first node, as the one after it")
    parser.add_argument("script", nargs="+", metavar="SCRIPT", help="a script, or -m MODULE, with its arguments")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
