"""Lines with which the driver of a launch reports its state to the launcher."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from det_core.interfaces.launcher import Cause

_PREFIX = "det-ray: "


@dataclass(frozen=True, kw_only=True)
class Report:
    """State of a launch in Ray.

    Attributes:
        job: Ray's id of the driver as a job.
        placed: whether the launch has its nodes.
        message: reason for which it waits, or explanation of the end.
        cause: value of the cause if the launch has ended, else None.
    """

    job: str = ""
    placed: bool = False
    message: str = ""
    cause: str | None = None

    def __post_init__(self) -> None:
        if self.cause is not None:
            Cause(self.cause)

    def format_line(self) -> str:
        """Return the report as a line."""
        return _PREFIX + json.dumps(asdict(self))


def parse_report(line: str) -> Report | None:
    """Return the report of a line, or None if it is other output."""
    return Report(**json.loads(line.removeprefix(_PREFIX))) if line.startswith(_PREFIX) else None
