"""Distributions that put files over each other's: of both only a part is left, and removing one takes it from both."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from det_core.plugins._registry import intact_distributions, normalize


def overlaps(ours: Collection[str]) -> Iterator[str]:
    """One message for each distribution of ours, by normalized name, and each other one that have a file in common."""
    files = {each: _files(each) for each in intact_distributions()}
    own = sorted((each for each in files if normalize(each.name) in ours), key=lambda each: each.name)
    for other in sorted(files.keys() - own, key=lambda each: each.name):
        for mine in own:
            if shared := files[mine] & files[other]:
                _, example = min(shared)
                yield (
                    f"{mine.name} {mine.version} and {other.name} {other.version} overwrite each other's files, "
                    f"such as {example} ({len(shared)} in all); type: pip uninstall {other.name}; "
                    f"pip install --force-reinstall --no-deps {mine.name}"
                )


def _files(distribution: Any) -> set[tuple[str, str]]:
    """Where it is installed, and each path from there. (``distribution.files`` would look at every one of them.)"""
    root = str(distribution.locate_file(""))
    lines = (distribution.read_text("RECORD") or "").splitlines()
    return {(root, line.rsplit(",", 2)[0]) for line in lines}
