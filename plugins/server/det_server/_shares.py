"""Shares of a limited resource, such as memory, connections or downloads, which callers hold at the same time."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from det_server._refusal import RefusedError


class Shares:
    """Amounts that callers hold. Threads may share it."""

    def __init__(self) -> None:
        self._held = Counter[Hashable]()
        self._lock = threading.Lock()

    @property
    def total(self) -> int:
        """Return what all callers hold."""
        return self._held.total()

    def of(self, caller: Hashable) -> int:
        """Return what a caller holds."""
        return self._held[caller]

    def take(self, caller: Hashable, amount: int = 1, *, each: float, total: float = math.inf) -> bool:
        """Give a caller an amount, and return whether the limits permit it.

        Args:
            caller: the caller.
            amount: the amount.
            each: maximum of each caller.
            total: maximum of all callers together.
        """
        with self._lock:
            if self.total + amount > total or self.of(caller) + amount > each:
                return False
            self._held[caller] += amount
            return True

    def give_back(self, caller: Hashable, amount: int = 1) -> None:
        """Take back an amount that a caller holds."""
        with self._lock:
            self._held[caller] -= amount
            self._held += Counter()  # forgets callers who hold nothing

    @contextmanager
    def reserve(
        self, caller: Hashable, amount: int = 1, *, each: float, total: float = math.inf, refusal: str
    ) -> Iterator[None]:
        """Give a caller an amount during the block. The arguments are those of `take`, and the message of the error.

        Raises:
            RefusedError: the limits do not permit it.
        """
        with self.grow(caller, each=each, total=total, refusal=refusal) as take:
            take(amount)
            yield

    @contextmanager
    def grow(
        self, caller: Hashable, *, each: float, total: float = math.inf, refusal: str
    ) -> Iterator[Callable[[int], None]]:
        """Return a function that gives a caller one amount after the other until the end of the block.

        The arguments are those of `reserve`, and so is the error that the function raises.
        """
        held = 0

        def take(amount: int) -> None:
            nonlocal held
            if not self.take(caller, amount, each=each, total=total):
                raise RefusedError(503, refusal, {"retry-after": "1"})
            held += amount

        try:
            yield take
        finally:
            self.give_back(caller, held)
