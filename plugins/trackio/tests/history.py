"""What Trackio itself reads from its store."""

from __future__ import annotations

from typing import Any

import trackio
from trackio.sqlite_storage import SQLiteStorage


def runs(project: str) -> list[Any]:
    """Return the runs of a project, which may not exist."""
    try:
        return list(trackio.Api().runs(project))
    except ValueError:
        return []


def history(project: str, run: Any) -> list[dict[str, Any]]:
    """Return the rows of a run in the order in which they were written."""
    return SQLiteStorage.get_logs(project, run.name, run_id=run.id)
