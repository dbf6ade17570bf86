"""``python -m det_core.launch BACKEND [OPTIONS] -- SCRIPT [ARGUMENT...]``: a script on several processes.

The runner starts the workers of trial classes with it, and people start scripts on the Core API. On several nodes it
is started once on each.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence

import yaml

from det_core.core._info import get_cluster_info
from det_core.errors import DetError, LaunchError
from det_core.interfaces.launcher import EXIT_DO_NOT_RESTART
from det_core.launch import backends
from det_core.launch._node import Node
from det_core.launch._verdict import REASON
from det_core.launch.local import gpus

_USAGE = """python -m det_core.launch BACKEND [--slots N] [--option KEY=VALUE]... -- SCRIPT [ARGUMENT...]
       python -m det_core.launch BACKEND --hosts A,B --node I --port P ... -- SCRIPT [ARGUMENT...]   on A, and on B"""


def main(argv: Sequence[str]) -> int:
    """Start the workers and wait for them; the exit code."""
    args = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    options = dict(args.option)
    try:
        backend = backends.open_backend(args.backend, backends.parse_options(args.backend, options or backends.block()))
        env = {backends.OPTIONS: json.dumps(options)} if options else {}
        return _node(args).run(args.backend, backend, [sys.executable, *args.script], env)
    except DetError as error:
        print(f"{REASON}{'; '.join(str(error).splitlines())}", file=sys.stderr)  # noqa: T201
        return EXIT_DO_NOT_RESTART
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _node(args: argparse.Namespace) -> Node:
    """What is not given is the task's, if this process belongs to one, else this machine."""
    task = get_cluster_info()
    slots = len(task.slot_ids) if task else gpus() or 1
    if args.hosts and args.node is None:
        raise LaunchError(f"which node is this? Give its index among {', '.join(args.hosts)}, from 0, as --node I")
    return Node(
        hosts=args.hosts or (task.container_addrs if task else ["127.0.0.1"]),
        node=args.node if args.node is not None else task.container_rank if task else 0,
        slots=slots if args.slots is None else args.slots,
        port=args.port,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m det_core.launch", usage=_USAGE, description="Start workers.")
    parser.add_argument("backend", metavar="BACKEND", help="a distributed backend; `det plugins list` shows them")
    parser.add_argument("--slots", type=int, metavar="N", help="workers on each node; default: the task's, or the GPUs")
    parser.add_argument(
        "--option",
        type=_option,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the backend, as under `distributed` in a config; the value is YAML",
    )
    parser.add_argument(
        "--hosts", type=lambda text: text.split(","), metavar="A,B", help="all nodes, the chief's first"
    )
    parser.add_argument("--node", type=int, metavar="I", help="which of them this is, from 0")
    parser.add_argument("--port", type=int, metavar="P", help="free on the first node, as the one after it")
    parser.add_argument("script", nargs="+", metavar="SCRIPT", help="a script, or -m MODULE, with its arguments")
    return parser


def _option(text: str) -> tuple[str, object]:
    key, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"it is {text!r}; expected KEY=VALUE")
    return key, yaml.safe_load(value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
