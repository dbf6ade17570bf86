"""Base class of all trial classes."""

from __future__ import annotations

from abc import ABC
from typing import Any


class Trial(ABC):  # noqa: B024  (frameworks add the abstract methods)
    """A model and the code that trains it. Frameworks derive their trial classes from this class."""

    trial_context_class: type[Any] | None = None
    """Class of the context that ``__init__`` receives."""
