"""Checks of installed plugins: what an import costs, and distributions that overwrite each other's files.

Such distributions are both incomplete, and uninstalling one removes the shared files from both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from det_core.errors import PluginError
from det_core.package_commands import package_command
from det_core.plugins._registry import intact_distributions, normalize_distribution_name

_TIMEOUT = 60
# A plugin may print while it is imported or at exit.
_SCRIPT = """
import importlib, json, os, sys, time
import det_core.config._experiment, det_core.core, det_core.specs, det_core.trial
from det_core.plugins import hookimpl
for name in sys.argv[2:]:
    importlib.import_module(name)
before, begin = set(sys.modules), time.process_time()
importlib.import_module(sys.argv[1])
spent = time.process_time() - begin
print("", json.dumps([1000 * spent, sorted(set(sys.modules) - before)]), sep="\\n", flush=True)
os._exit(0)
"""


@dataclass(frozen=True)
class ImportCost:
    """Cost of importing a module, beyond that of det-core's own modules."""

    milliseconds: float
    """CPU time."""
    modules: Sequence[str]
    """Names of the modules that were loaded, sorted, including the module itself."""


def measure_import(module: str, *, first: Sequence[str] = ()) -> ImportCost:
    """Import a module in a new process and return the cost.

    Args:
        module: name of the module.
        first: names of modules to import before it, without cost.

    Raises:
        PluginError: the import failed, ended the process or took more than a minute.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", _SCRIPT, module, *first]
    try:
        ran = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", timeout=_TIMEOUT)
        milliseconds, modules = json.loads(ran.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        raise PluginError(f"the import of {module} takes more than {_TIMEOUT} s") from None
    except (IndexError, ValueError) as error:
        last = ran.stderr.strip().rpartition("\n")[2] or "it printed nothing"
        raise PluginError(
            f"the import of {module} ends a new process with exit code {ran.returncode}: {last}"
        ) from error
    return ImportCost(milliseconds, modules)


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
