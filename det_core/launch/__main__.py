"""Command line that starts a script in several processes, ``python -m det_core.launch BACKEND ... -- SCRIPT ...``.

The runner starts the workers of trial classes with it, and users start scripts on the Core API. On several nodes it
is started once on each node.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from det_core.config import parse_assignments
from det_core.errors import ConfigError
from det_core.launch.standalone import start_workers

_USAGE = """python -m det_core.launch BACKEND [--slots N] [--option KEY=VALUE]... -- SCRIPT [ARGUMENT...]
       python -m det_core.launch BACKEND --hosts A,B --node I --port P ... -- SCRIPT [ARGUMENT...]   (on each node)"""


def main(argv: Sequence[str]) -> int:
    """Start the workers, wait for them, and return the exit code."""
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        options = parse_assignments(args.option, "--option")
    except ConfigError as error:
        parser.error(str(error))
    place = {"hosts": args.hosts, "node": args.node, "slots": args.slots, "port": args.port}
    return start_workers(args.backend, [sys.executable, *args.script], options, **place)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m det_core.launch", usage=_USAGE, description="Start a script in several processes."
    )
    parser.add_argument("backend", metavar="BACKEND", help="distributed backend; `det plugins list` shows all")
    parser.add_argument(
        "--slots",
        type=int,
        metavar="N",
        help="number of workers per node; by default the slots of the task, or the GPUs of this machine",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="option of the backend, as under `distributed` in a config, written as key.key=YAML; may be repeated",
    )
    parser.add_argument(
        "--hosts",
        type=lambda text: text.split(","),
        metavar="A,B",
        help="addresses of all nodes, starting with that of the chief",
    )
    parser.add_argument("--node", type=int, metavar="I", help="index of this node in --hosts, from 0")
    parser.add_argument("--port", type=int, metavar="P", help="port; P and P+1 must be free on the first node")
    parser.add_argument("script", nargs="+", metavar="SCRIPT", help="script or -m MODULE, with its arguments")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
