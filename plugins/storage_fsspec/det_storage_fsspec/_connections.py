"""Connections to one file system, which several threads share."""

from __future__ import annotations

import importlib
import os
import queue
import re
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import fsspec

from det_core.errors import StorageError
from det_core.interfaces.secrets import iter_texts, mask_texts
from det_storage_fsspec._config import SFTP, FsspecConfig

T = TypeVar("T")

_FINAL_ERRORS: Final = (PermissionError, NotADirectoryError, IsADirectoryError, ImportError, TypeError, ValueError)
"""Errors that another connection would not change."""
PAUSES: Final = (0.5, 2.0, 8.0)
"""Numbers of seconds before the second and further attempts."""
INTERACTIVE_TIMEOUT: Final = 10.0
"""Maximum number of seconds that a client waits for an answer while a user waits."""


class Connections:
    """Connections to a file system. Each is used by one thread at a time, because few clients allow more.

    Args:
        config: the config block.
        pauses: numbers of seconds before the second and further attempts of an operation.
    """

    def __init__(self, config: FsspecConfig, pauses: tuple[float, ...] = PAUSES) -> None:
        self._config = config
        self._pauses = pauses
        self._files = _find_class(config.protocol)
        self.root = str(self._files._strip_protocol(config.url)).rstrip("/")
        """Path of the directory within the file system."""
        self._idle: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()

    def use(self, operation: Callable[[Any], T]) -> T:
        """Call a function with a file system. If that fails, call it again with a new connection.

        Args:
            operation: function that may be repeated.

        Raises:
            StorageError: all attempts failed, or the user may not do this.
        """
        for pause in (*self._pauses, None):
            try:
                connection = self._take()
                result = operation(connection)
            except Exception as error:  # noqa: BLE001  (clients raise what they like)
                if pause is None or isinstance(error, _FINAL_ERRORS):
                    raise StorageError(self._explain(error)) from None  # the cause might quote secrets
                time.sleep(pause)
            else:
                self._idle.put((os.getpid(), connection))
                return result
        raise AssertionError

    def _take(self) -> Any:
        while not self._idle.empty():
            try:
                process, connection = self._idle.get_nowait()
            except queue.Empty:
                break
            if process == os.getpid():  # a forked child must not use those of its parent
                connection.invalidate_cache()
                return connection
        return self._connect()

    def _connect(self) -> Any:
        options = {**self._files._get_kwargs_from_urls(self._config.url), **self._config.options}
        if self._config.protocol not in SFTP:
            return self._files(**options, skip_instance_cache=True)
        from det_storage_fsspec._sftp import sftp_options  # others need no paramiko

        connection = self._files(**{**sftp_options(self._config.timeout), **options}, skip_instance_cache=True)
        connection.ftp.get_channel().settimeout(self._config.timeout)  # its other waits have no limit
        return connection

    def _explain(self, error: Exception) -> str:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        text = mask_texts(text, [secret for _, secret in iter_texts(self._config.options)])
        text = re.sub(r"://[^/@\s]*@", "://", text)
        return f"cannot use {self._config.url}: {text}; correct checkpoint_storage.url or storage_options"


def _find_class(protocol: str) -> Any:
    """Return the class of the file systems of a protocol.

    For SFTP it is the one of fsspec, because others copy a file where a server cannot rename it in one step.

    Raises:
        StorageError: the protocol is unknown, or its library is not installed.
    """
    try:
        if protocol in SFTP:
            return importlib.import_module("fsspec.implementations.sftp").SFTPFileSystem
        return fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        hint = "pip install 'det-storage-fsspec[sftp]'" if protocol in SFTP else "install it"
        raise StorageError(f"checkpoint_storage needs a library for {protocol}://: {error}; {hint}") from error
    except ValueError as error:
        raise StorageError(f"{error}; correct checkpoint_storage.url") from error
