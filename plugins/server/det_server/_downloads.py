"""Limit on the files of checkpoints that are sent at the same time, some of which are copies on the server's disk."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from det_server._refusal import RefusedError

MAX_DOWNLOADS = 32
"""Maximum number of files of checkpoints that are read and sent at a time."""
MAX_DOWNLOADS_PER_PERSON = 8
"""Maximum number of files of checkpoints that are read and sent to one person at a time. One program takes 4."""


class Downloads:
    """Downloads of all people, each from its request to the end of its answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = Counter[str]()

    @contextmanager
    def reserve(self, person: str) -> Iterator[None]:
        """Count a download of a person during the block.

        Raises:
            RefusedError: there are too many.
        """
        with self._lock:
            if self._open.total() >= MAX_DOWNLOADS or self._open[person] >= MAX_DOWNLOADS_PER_PERSON:
                message = f"{self._open[person]} downloads of {person} and {self._open.total()} in all are under way"
                raise RefusedError(503, f"{message}; try again in a moment", {"retry-after": "1"})
            self._open[person] += 1
        try:
            yield
        finally:
            with self._lock:
                self._open[person] -= 1
                self._open += Counter()  # forgets people who have none
