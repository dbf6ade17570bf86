"""Selection of some of the files of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Collection

from det_core.ignore_patterns import pattern_matcher

Selector = Callable[[str], bool]
"""Function of a relative path that returns whether the file is selected."""
ALL_FILES = ("**/*",)
"""Patterns that match every file of a checkpoint."""


def glob_selector(globs: Collection[str]) -> Selector:
    """Return a function that tests whether a stored path matches ``.gitignore`` patterns.

    Raises:
        DetError: as `pattern_matcher`.
    """
    return pattern_matcher(globs)
