"""Checks of `det doctor`, one function for each."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from det_core.core import open_storage_block
from det_core.core.failure_notes import FAILURE_PREFIX
from det_core.errors import DetError, LaunchError, RecordNotFound
from det_core.extras import EXTRAS, has_extra
from det_core.home import default_storage
from det_core.launch import backends
from det_core.launch._slot_directory import SlotDirectory
from det_core.launch.gpu_slots import count_gpus
from det_core.launch.launch_rehearsal import rehearse_launch
from det_core.launch.launchers import open_launcher
from det_core.launch.local import LocalConfig
from det_core.launch.network import reserve_free_ports
from det_core.launch.output_lines import LineDecoder
from det_core.package_commands import package_command
from det_core.plugins import plugin_registry
from det_core.storage import check_storage
from det_core.tracking import open_store
from det_core.tracking.secret_files import resolve_secrets
from det_core.version import __version__

if TYPE_CHECKING:
    from det_core.config import ExperimentConfig

_REHEARSAL_SECONDS = 120.0
"""Time limit of a rehearsal in seconds. The workers start, may import a framework, connect and exit."""


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """Result of one check. If it failed, ``detail`` says what to do."""

    check: str
    ok: bool
    detail: str


def run_checks(config: ExperimentConfig | None) -> Iterator[CheckResult]:
    """Run all checks, even if some of them fail.

    Args:
        config: the experiment that will run on this machine, or None to check everything that is installed.

    Yields:
        The result of each check, in a fixed order.
    """
    for name, look in _CHECKS.items():
        try:
            yield CheckResult(check=name, ok=True, detail=look(config))
        except (DetError, OSError) as error:
            yield CheckResult(check=name, ok=False, detail=str(error))


def _python(_: ExperimentConfig | None) -> str:
    return f"{platform.python_version()} at {sys.executable}, det-core {__version__}"


def _plugins(_: ExperimentConfig | None) -> str:
    reports = plugin_registry().reports
    problems = [f"{report}: {report.problem}" for report in reports if report.status not in ("ok", "disabled")]
    if problems := [*problems, *plugin_registry().clashes()]:
        raise DetError("; ".join(problems))
    return ", ".join(f"{report.name} {report.version}" for report in reports if report.status == "ok")


def _extras(_: ExperimentConfig | None) -> str:
    found = [name for name in EXTRAS if has_extra(name)]
    missing = [
        f"for {extra.purpose}: {package_command('install', f'det-core[{name}]')}"
        for name, extra in EXTRAS.items()
        if name not in found
    ]
    return "; ".join([", ".join(found) or "none", *missing])


def _record(_: ExperimentConfig | None) -> str:
    with open_store(wait=10) as store:
        with suppress(RecordNotFound):  # the write reached the store, where it changes nothing
            store.release_lease(0, "doctor")
        return store.url


def _storage(config: ExperimentConfig | None) -> str:
    block = (config.dump()["checkpoint_storage"] if config else None) or default_storage()
    check_storage(open_storage_block(block))
    return f"a file was written to {block['type']}, read and deleted"


def _slots(config: ExperimentConfig | None) -> str:
    found = count_gpus()
    launcher = config.launcher.options if config else LocalConfig()
    if not isinstance(launcher, LocalConfig):
        return f"those of the launcher {config.launcher.type}" if config else ""
    slots, wanted = found or launcher.slots, config.resources.slots_per_trial if config else 1
    if wanted > slots:
        more = "" if found else ", or set launcher: {type: local, slots: N}"
        raise LaunchError(
            f"the trial needs {wanted} slots, but the launcher has {slots}; lower resources.slots_per_trial{more}"
        )
    SlotDirectory().close()
    return f"{slots}, of which a trial uses {max(wanted, 1)}; {found} GPUs"


def _launcher(config: ExperimentConfig | None) -> str:
    if config is None or isinstance(config.launcher.options, LocalConfig):
        return "local"
    return rehearse_launch(open_launcher(config), max(config.resources.slots_per_trial, 1), config.dump())


def _host(_: ExperimentConfig | None) -> str:
    name = socket.gethostname()
    try:
        address = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0]
    except socket.gaierror as error:
        raise LaunchError(
            f"this host's name {name!r} does not resolve to an address ({error.strerror}), but workers connect to it; "
            f"add the line `127.0.0.1 {name}` to /etc/hosts"
        ) from error
    return f"{name} is {address}"


def _ports(_: ExperimentConfig | None) -> str:
    with reserve_free_ports(2) as ports:
        return f"{ports[0]} and {ports[1]} are free"


def _backend(config: ExperimentConfig | None) -> str:
    names = _backends(config)
    for name in names:
        plugin_registry().load(plugin_registry().find("backend", name))
    return f"{', '.join(names)} can be used" if names else "none; not needed for one slot or a command"


def _rehearsal(config: ExperimentConfig | None) -> str:
    told = [f"{name}: {_rehearse(name, config)}" for name in _backends(config)]
    return "; ".join(told) or "nothing to start"


def _backends(config: ExperimentConfig | None) -> list[str]:
    """Return the name of the backend that the config needs, if any. Without a config, return all names."""
    if config is None:
        return plugin_registry().names("backend")
    spec = backends.choose_backend(config, None, os.environ)
    return [spec.name] if spec else []


def _rehearse(name: str, config: ExperimentConfig | None) -> str:
    """Start the workers that a trial would have, and return the output of their chief."""
    slots = max(config.resources.slots_per_trial, 1) if config else 2
    block = resolve_secrets(config.dump()).get("distributed") if config else None
    options = {key: value for key, value in (block or {}).items() if key != "backend" and value is not None}
    given = [f"--option={key}={json.dumps(value)}" for key, value in options.items()]
    command = [
        "-m",
        "det_core.launch",
        name,
        f"--slots={slots}",
        *given,
        "--",
        "-m",
        "det_core.launch._launch_rehearsal_worker",
    ]
    try:
        ran = subprocess.run([sys.executable, *command], capture_output=True, timeout=_REHEARSAL_SECONDS)
    except subprocess.TimeoutExpired:
        raise LaunchError(
            f"{name}: {slots} workers did not connect to each other within {_REHEARSAL_SECONDS:.0f} s; "
            f"to see why, start them with: {_by_hand(command)}"
        ) from None
    if ran.returncode:
        raise LaunchError(f"{name}: {_reason(ran.stderr)}; for details, run: {_by_hand(command)}")
    return ", ".join(text for rank, text in _lines(ran.stdout) if rank == 0)


def _by_hand(command: list[str]) -> str:
    python = "python" if shutil.which("python") == sys.executable else sys.executable
    return " ".join([python, *command])


def _reason(stderr: bytes) -> str:
    texts = [text for _, text in _lines(stderr) if text.strip()]
    reasons = [text.removeprefix(FAILURE_PREFIX) for text in texts if text.startswith(FAILURE_PREFIX)]
    return next(iter([*reasons, *texts[-1:]]), "the workers failed without output")


def _lines(output: bytes) -> list[tuple[int | None, str]]:
    lines = LineDecoder()
    return [*lines.feed(output), *lines.feed(b"")] if output else []


_CHECKS: dict[str, Callable[[ExperimentConfig | None], str]] = {
    "python": _python,
    "plugins": _plugins,
    "extras": _extras,
    "record": _record,
    "storage": _storage,
    "slots": _slots,
    "launcher": _launcher,
    "host name": _host,
    "ports": _ports,
    "backend": _backend,
    "rehearsal": _rehearsal,
}
