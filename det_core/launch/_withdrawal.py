"""End of a launch that the runner withdraws before its processes have been started."""

from __future__ import annotations

from typing import Final

from det_core.interfaces.launcher import Cause, Exit

WITHDRAWN: Final = Exit(code=1, cause=Cause.NOT_STARTED, message="it was withdrawn before its start")
