"""Selection of some of the files of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Collection

Selector = Callable[[str], bool]
"""Function of a relative path that returns whether the file is selected."""
ALL_FILES = ("**/*",)
"""Patterns that match every file of a checkpoint."""


def glob_selector(globs: Collection[str]) -> Selector:
    """Return a function that tests whether a stored path matches ``.gitignore`` patterns."""
    from pathspec import GitIgnoreSpec  # the import takes 12 ms, and only deletion needs it

    return GitIgnoreSpec.from_lines(globs).match_file
