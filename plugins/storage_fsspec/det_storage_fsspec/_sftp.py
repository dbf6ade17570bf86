"""Arguments that make fsspec's file system for SFTP as careful as OpenSSH. Importing this module imports paramiko."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import paramiko

from det_storage_fsspec._config import TIME_LIMITS


class KnownHosts(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]  # it has no types
    """Policy that accepts the keys in ``~/.ssh/known_hosts`` only, as `paramiko.SSHClient` knows no keys by itself."""

    def missing_host_key(self, client: Any, hostname: str, key: paramiko.PKey) -> None:
        file = Path.home() / ".ssh" / "known_hosts"
        if not (file.exists() and paramiko.HostKeys(str(file)).check(hostname, key)):
            raise PermissionError(
                f"the key of {hostname} is not in {file}; connect once with ssh, which adds it, or set "
                "storage_options: {host_key_policy: auto_add} to accept any"
            )


def sftp_options(timeout: float) -> dict[str, Any]:
    """Return default arguments of the file system.

    Args:
        timeout: number of seconds that a connection may take.
    """
    limits = dict.fromkeys(TIME_LIMITS["sftp"], timeout)
    return {"host_key_policy": KnownHosts(), **limits}
