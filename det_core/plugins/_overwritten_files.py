"""Detection of distributions that overwrite each other's files.

Such distributions are both incomplete, and uninstalling one removes the shared files from both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from det_core.package_commands import package_command
from det_core.plugins._registry import intact_distributions, normalize_distribution_name


def find_overwritten_files(ours: Collection[str]) -> Iterator[str]:
    """Yield a message for each pair of one of ``ours`` and another distribution that have files in common.

    Args:
        ours: names of distributions.
    """
    files = {each: _files(each) for each in intact_distributions()}
    own = sorted((each for each in files if normalize_distribution_name(each.name) in ours), key=lambda each: each.name)
    for other in sorted(files.keys() - own, key=lambda each: each.name):
        for mine in own:
            if shared := files[mine] & files[other]:
                _, example = min(shared)
                remove, restore = package_command("uninstall", other.name), package_command("reinstall", mine.name)
                yield (
                    f"{mine.name} {mine.version} and {other.name} {other.version} overwrite each other's files, "
                    f"such as {example} ({len(shared)} in all); type: {remove}; {restore}"
                )


def _files(distribution: Any) -> set[tuple[str, str]]:
    """Return the root directory and relative path of each installed file.

    ``distribution.files`` is not used because it accesses every file.
    """
    root = str(distribution.locate_file(""))
    lines = (distribution.read_text("RECORD") or "").splitlines()
    return {(root, line.rsplit(",", 2)[0]) for line in lines}
