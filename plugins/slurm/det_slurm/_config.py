"""Options of the launcher ``slurm`` in a config."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from det_core.config import Block, Positive
from det_slurm._reserved_options import SRUN, explain_wrong_option

_TIME = re.compile(r"\d+|\d+:\d+|\d+:\d+:\d+|\d+-\d+(:\d+){0,2}|UNLIMITED|INFINITE", re.IGNORECASE)
_GPU_OPTIONS = ("--gpus", "-G", "--gres=gpu")
_SIGNAL = re.compile(r"--signal=(R:)?(SIG)?(TERM|URG|USR1|USR2)(@\d+)?")
"""Warnings that the node agent passes on. Other signals would only end the processes of a trial."""


def _check_time(value: object) -> object:
    if not isinstance(value, str):  # YAML reads 4:00:00 as the number 14400
        raise ValueError(f"expected text in quotes, such as '4:00:00', or '240' for minutes, got {value!r}")
    if not _TIME.fullmatch(value):
        raise ValueError(f"expected a time such as '240' (minutes), '4:00:00' or '2-12:00:00', got {value!r}")
    return value


def _check_gres(value: str) -> str:
    name, _, count = value.rpartition(":")
    if name.startswith("gpu") and count.isdigit() and count != "1":
        raise ValueError(
            f"{value!r} asks for {count} GPUs for each slot, but a slot is one GPU; write {name!r}, and set "
            f"slots_per_node to the number of GPUs of a node"
        )
    return value


def _check_option(value: str) -> str:
    if problem := explain_wrong_option(value, SRUN):
        raise ValueError(problem)
    if value.startswith("--sig") and not _SIGNAL.fullmatch(value):
        raise ValueError(f"expected --signal with TERM, URG, USR1 or USR2, such as --signal=USR1@300, got {value!r}")
    return value


class SlurmConfig(Block):
    """Options of the launcher."""

    slots_per_node: Positive = Field(default=1, examples=[8], json_schema_extra={"unit": "slots"})
    """Number of workers that a node runs, such as the number of its GPUs. Larger trials have several nodes."""
    partition: str | None = Field(default=None, examples=["gpu"])
    """Partition of the jobs. Like other options that are unset, Slurm chooses it."""
    account: str | None = Field(default=None, examples=["vision"])
    """Account that the jobs are charged to."""
    qos: str | None = Field(default=None, examples=["long"])
    """Quality of service of the jobs."""
    time: Annotated[str, BeforeValidator(_check_time)] | None = Field(default=None, examples=["4:00:00"])
    """Time limit of a run, such as ``'4:00:00'``, in quotes. A trial saves a checkpoint before, and goes on in a new
    job."""
    gres: Annotated[str, AfterValidator(_check_gres)] | None = Field(default=None, examples=["gpu:a100"])
    """Resource of each slot, such as ``gpu`` or ``gpu:a100``."""
    constraint: str | None = Field(default=None, examples=["skylake"])
    """Features of the nodes."""
    options: tuple[Annotated[str, AfterValidator(_check_option)], ...] = Field(
        default=(), examples=[["--mem-per-cpu=4G"]]
    )
    """Further options of ``srun``, one word each, such as ``--mem-per-cpu=4G``. They come last, and so override those
    of the launcher. Those that would break a launch are refused."""

    def device(self) -> Literal["cpu", "cuda"]:
        """Return the device of the slots."""
        has_gpus = (self.gres or "").startswith("gpu") or any(one.startswith(_GPU_OPTIONS) for one in self.options)
        return "cuda" if has_gpus else "cpu"

    def job_options(self) -> list[str]:
        """Return the options that choose where a job runs, which steps of an allocation do not take."""
        chosen = {name: getattr(self, name) for name in ("partition", "account", "qos", "constraint")}
        return [f"--{name}={value}" for name, value in chosen.items() if value is not None]

    def run_options(self, slots: int) -> list[str]:
        """Return the options of each run of a trial, with those of the user at the end.

        Args:
            slots: number of slots of a node.
        """
        return [*([f"--time={self.time}"] if self.time else []), *self.resource_options(slots), *self.options]

    def resource_options(self, slots: int) -> list[str]:
        """Return the options for the resources of a node.

        Args:
            slots: number of slots of a node.
        """
        options = []
        if self.gres:
            name, _, count = self.gres.rpartition(":")
            is_counted = bool(name) and count.isdigit()
            options.append(f"--gres={name if is_counted else self.gres}:{slots * (int(count) if is_counted else 1)}")
        if not any(one.startswith(("--cpus-per-", "-c")) for one in self.options):
            options.append(f"--cpus-per-task={slots}")
        return options
