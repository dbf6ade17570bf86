"""State of a page's lists, as its URL has it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

PAGE_SIZE = 50
"""Number of rows per page of a list."""
_LAST_PAGE = 1_000_000


@dataclass(frozen=True)
class ListView:
    """Sort order and page of a list.

    Args:
        values: all values of the URL that the page knows, for links that keep them.
        order: sort key.
        reverse: whether the sort order is reversed.
        page: number of the page, from 1.
        size: number of rows per page.
        descending: sort keys whose greatest values come first unless reversed.
    """

    values: Mapping[str, str]
    order: str
    reverse: bool
    page: int
    size: int = PAGE_SIZE
    descending: Collection[str] = ()

    @classmethod
    def from_query(
        cls,
        query: Mapping[str, str],
        names: Collection[str],
        *,
        order: str,
        size: int = PAGE_SIZE,
        descending: Collection[str] = (),
    ) -> ListView:
        """Read the view from a query. Invalid values become the defaults.

        Args:
            query: the query of the URL.
            names: names of the other values that the page knows.
            order: default sort key.
            size: number of rows per page.
            descending: sort keys whose greatest values come first.
        """
        known = (*names, "order", "reverse", "page")
        values = {name: query[name] for name in known if query.get(name)}
        page = query.get("page", "")
        return cls(
            values,
            query.get("order") or order,
            query.get("reverse") == "1",
            min(int(page[:9]), _LAST_PAGE) if page.isascii() and page.isdigit() and int(page[:9]) > 0 else 1,
            size,
            descending,
        )

    def within(self, total: int) -> ListView:
        """Return the view of the last page if this one is beyond it.

        Args:
            total: number of all rows.
        """
        return replace(self, page=min(self.page, max(1, -(-total // self.size))))

    @property
    def first(self) -> int:
        """Return the number of rows before the page."""
        return (self.page - 1) * self.size

    @cached_property
    def ascending(self) -> bool:
        """Return whether the rows are in ascending order of the sort key."""
        return (self.order in self.descending) == self.reverse

    @property
    def filtered(self) -> bool:
        """Return whether the list shows a selection of its rows."""
        return bool(set(self.values) - {"order", "reverse", "page"})

    def get(self, name: str) -> str:
        """Return a value of the URL, or ""."""
        return self.values.get(name, "")
