"""Command ``det ray``, which runs experiments as jobs of a Ray cluster."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from det_core.config import load_config
from det_core.errors import LaunchError
from det_core.launch.context_archive import pack_context_dir, unpack_context_dir
from det_core.scratch import scratch_directory

_DASHBOARD = "http://127.0.0.1:8265"
_IGNORE_GITIGNORE = "RAY_RUNTIME_ENV_IGNORE_GITIGNORE"
"""Environment variable with which Ray uploads files, too, that ``.gitignore`` matches."""
_EXAMPLE = "example: det ray submit --address http://head:8265 const.yaml ."


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to the parser."""
    parser.epilog = _EXAMPLE
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    text = "run an experiment as a job on the head node of a cluster"
    submit = commands.add_parser("submit", help=text, description=text, epilog=_EXAMPLE)
    submit.add_argument("config", type=Path, metavar="CONFIG", help="the experiment config, in YAML, a file below DIR")
    submit.add_argument(
        "directory", type=Path, nargs="?", metavar="DIR", help="directory with your code; default: that of CONFIG"
    )
    submit.add_argument(
        "--address",
        default=_DASHBOARD,
        metavar="URL",
        help="dashboard of the cluster (default: %(default)s; RAY_API_SERVER_ADDRESS overrides it)",
    )
    submit.set_defaults(run=_submit)


def _submit(args: argparse.Namespace) -> int:
    directory = (args.directory or args.config.parent).resolve()
    config = args.config.resolve()
    if not config.is_relative_to(directory):
        raise LaunchError(f"{args.config} is not below {directory}, whose files the job gets; move it there")
    load_config(config)  # before the job is in the queue
    name = str(config.relative_to(directory))
    with scratch_directory("ray-job") as copy:
        unpack_context_dir(pack_context_dir(directory), copy)
        if not (copy / name).exists():
            raise LaunchError(f"{name} is left out by .detignore, so the job would not get it; change .detignore")
        job = submit_job(args.address, ["det", "run", name, "."], copy)
    print(f"Submitted Ray job {job}. Follow it with: ray job logs --address {args.address} --follow {job}")  # noqa: T201
    return 0


def submit_job(address: str, command: list[str], directory: Path) -> str:
    """Submit a job that runs a command in a copy of a directory, and return its id.

    Raises:
        LaunchError: the cluster cannot be reached, or refuses the job.
    """
    try:
        from ray.job_submission import JobSubmissionClient

        os.environ[_IGNORE_GITIGNORE] = "1"
        client = JobSubmissionClient(address)
        return str(client.submit_job(entrypoint=shlex.join(command), runtime_env={"working_dir": str(directory)}))
    except (ImportError, RuntimeError, ConnectionError, ValueError) as error:
        problem = " ".join(str(error).split())
        advice = "check --address, and that ray[default] is installed here and on the head node"
        raise LaunchError(f"cannot submit a job to Ray at {address}: {problem}; {advice}") from error
