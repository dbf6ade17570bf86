"""Interface of the changes in the tracking store."""

from __future__ import annotations

from abc import ABC, abstractmethod

from det_core.interfaces.records import Changes


class ChangesStore(ABC):
    """The part of a `TrackingStore` that says what was added since an earlier call."""

    @abstractmethod
    def changes(self, after: str = "") -> Changes:
        """Return what was added since another call, at a cost that depends only on what was added.

        Changes of existing records, such as states, are not found. A call reads at most 10,000 rows of each kind, so a
        caller that was away for long needs several calls. A trial may be returned again although nothing was added
        since, if another process was writing to the database at the time of the earlier call.

        Args:
            after: cursor that an earlier call on the same store returned. Empty to get the present cursor and no
                changes.

        Raises:
            ValueError: ``after`` is not such a cursor.
        """
