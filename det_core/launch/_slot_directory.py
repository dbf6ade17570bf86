"""Directory that all users of this host share for their slots, and the locked files in it.

Every operation is relative to a descriptor of the directory that was checked, so nobody can replace it meanwhile. A
file is written only by the process that created it, so ordinary users need no right to write those of others, and
fs.protected_regular does not concern them. What somebody else wrote is read up to a limit.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from det_core.errors import LaunchError

DIRECTORY_VARIABLE = "DET_SLOTS_DIR"
"""Environment variable that names the directory, for containers that share GPUs and for tests."""
_PARENTS = (Path("/run/lock"), Path("/tmp"))  # noqa: S108  (the directory in it is checked)
_NAME = "det-slots"
TICKET_PREFIX = "ticket-"
"""Prefix of the files of requests, and of files that do not have their final name yet."""
_SHARED = 0o1777
"""Mode of the directory. Sticky, so only the owner of a file removes it."""
_MOST_BYTES = 1 << 16
"""Maximum number of bytes that are read from a file."""
_OPEN = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # without it, a FIFO would block
_IS_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def slots_directory_path() -> Path:
    """Return the path of the directory, the same for all users of this host.

    It is ``DET_SLOTS_DIR``, else ``det-slots`` in /run/lock, which is emptied at each boot and not before. Where users
    cannot write there, as on Red Hat's systems and in containers of Apptainer, it is in /tmp.
    """
    if named := os.environ.get(DIRECTORY_VARIABLE):
        return Path(named).absolute()
    shared = (parent for parent in _PARENTS if parent.is_dir() and parent.stat().st_mode & _SHARED == _SHARED)
    usable = (parent for parent in shared if os.access(parent, os.W_OK))  # not in a container that is read-only
    return next(usable, _PARENTS[-1]) / _NAME


class SlotDirectory:
    """Open directory of slots.

    It stays locked (shared) as long as it is open, so that systemd-tmpfiles does not remove files that are in use.

    Args:
        create: whether to create it if it does not exist.

    Raises:
        LaunchError: it cannot be created, or other users could replace what is in it.
        FileNotFoundError: it does not exist and is not to be created.
        BlockingIOError: a cleaner of temporary files is at work.
    """

    def __init__(self, *, create: bool = True) -> None:
        self.path = slots_directory_path()
        if create and not os.path.lexists(self.path):
            _create_directory(self.path)
        try:
            self.descriptor = os.open(self.path, _IS_DIRECTORY)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _explain(self.path, "it is not a directory, or a symbolic link") from error
        try:
            _check_safety(self.path, self.descriptor)
            if create and not os.access(self.path, os.W_OK | os.X_OK, effective_ids=True):
                raise _explain(self.path, "you cannot write to it")
            fcntl.flock(self.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the directory in this process."""
        os.close(self.descriptor)

    @property
    def is_current(self) -> bool:
        """Whether the path still leads to this directory."""
        try:
            return os.path.samestat(self.path.lstat(), os.fstat(self.descriptor))
        except FileNotFoundError:
            return False

    def names(self, prefix: str) -> list[str]:
        """Return the names of the files that start with ``prefix``, sorted."""
        return sorted(name for name in os.listdir(self.descriptor) if name.startswith(prefix))  # noqa: PTH208

    def create(self, prefix: str, content: bytes = b"") -> tuple[str, int]:
        """Create a file that everyone can read and that this process has locked.

        Returns:
            Its name and its descriptor.

        Raises:
            BlockingIOError: another process looked at it before it was locked.
            OSError: it cannot be written.
        """
        name = prefix + secrets.token_hex(8)
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN, 0o644, dir_fd=self.descriptor)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(file, 0o644)  # whatever the umask is
            self.write(file, content)
            if not self._is_linked(name, file):
                raise BlockingIOError(f"{name} was removed before it was locked")
        except BaseException:
            os.close(file)
            self.remove(name)
            raise
        return name, file

    def write(self, file: int, content: bytes) -> None:
        """Replace the content of a file that this process created."""
        os.pwrite(file, content, 0)
        os.ftruncate(file, len(content))

    def read(self, name: str) -> tuple[os.stat_result, bytes, bool] | None:
        """Return the status of a file, its content, and whether a process has locked it. None if it is not readable."""
        try:
            with self._opened(name) as file:
                status = os.fstat(file)
                content = os.pread(file, _MOST_BYTES, 0)
                return status, content, not _try_shared(file)
        except (FileNotFoundError, LaunchError):
            return None

    def is_locked(self, name: str) -> bool:
        """Return whether a process has locked the file.

        Raises:
            LaunchError: the file cannot be opened, or is not a regular file.
        """
        try:
            with self._opened(name) as file:
                return not _try_shared(file)
        except FileNotFoundError:
            return False

    def lock(self, name: str) -> int:
        """Lock a file, created if necessary, and return its descriptor.

        Raises:
            BlockingIOError: another process has locked it, or looks at it.
            LaunchError: the file cannot be opened, or is not a regular file.
        """
        try:
            file = self._open(name)
        except FileNotFoundError:
            return self._create_locked(name)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self._is_linked(name, file):
                raise BlockingIOError(f"{name} was removed before it was locked")
        except BaseException:
            os.close(file)
            raise
        return file

    def remove(self, name: str) -> None:
        """Remove a file, unless it is another user's or gone."""
        with suppress(FileNotFoundError, PermissionError):
            os.unlink(name, dir_fd=self.descriptor)

    def remove_unlocked(self, name: str) -> None:
        """Remove a file, unless a process has locked it. It is locked meanwhile, so nobody locks what is removed."""
        with suppress(FileNotFoundError, BlockingIOError, LaunchError), self._opened(name) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._is_linked(name, file):
                self.remove(name)

    def _create_locked(self, name: str) -> int:
        """Create a file that is readable and locked from the moment at which it has its name."""
        temporary, file = self.create(TICKET_PREFIX)
        try:
            os.link(temporary, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor, follow_symlinks=False)
        except FileExistsError:
            os.close(file)
            raise BlockingIOError(f"another process has created {name}") from None
        except BaseException:
            os.close(file)
            raise
        finally:
            self.remove(temporary)
        return file

    def _open(self, name: str) -> int:
        try:
            file = os.open(name, os.O_RDONLY | _OPEN, dir_fd=self.descriptor)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._explain_file(name, error.strerror or str(error)) from error
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise self._explain_file(name, "not a regular file")
        return file

    @contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        file = self._open(name)
        try:
            yield file
        finally:
            os.close(file)

    def _is_linked(self, name: str, file: int) -> bool:
        try:
            return os.path.samestat(os.stat(name, dir_fd=self.descriptor, follow_symlinks=False), os.fstat(file))
        except FileNotFoundError:
            return False

    def _explain_file(self, name: str, reason: str) -> LaunchError:
        return LaunchError(f"the slot file {self.path / name} cannot be used: {reason}; remove it, or ask its owner to")


def _try_shared(file: int) -> bool:
    """Return whether the file could be locked at this moment, without keeping the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)  # a child that is just being started may have a copy of the descriptor
    return True


def _create_directory(path: Path) -> None:
    """Create the directory with its mode, in one step for the other users."""
    temporary = ""
    try:
        temporary = tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent)
        Path(temporary).chmod(_SHARED)
        os.rename(temporary, path)  # noqa: PTH104
    except OSError as error:
        if temporary:
            os.rmdir(temporary)  # noqa: PTH106
        if not os.path.lexists(path):  # otherwise another process was faster
            raise _explain(path, f"it cannot be created: {error.strerror}") from error


def _check_safety(path: Path, directory: int) -> None:
    """Check that only root and the owners of the files in it can replace something.

    Raises:
        LaunchError: others can.
    """
    status = os.fstat(directory)
    mode, owner = stat.S_IMODE(status.st_mode), status.st_uid
    if owner not in (0, os.geteuid()) and mode != _SHARED:
        raise _explain(path, f"it belongs to user id {owner} and has mode {mode:04o}, not {_SHARED:04o}")
    for place, its_mode in ((path, mode), (path.parent, stat.S_IMODE(path.parent.stat().st_mode))):
        if its_mode & 0o022 and not its_mode & stat.S_ISVTX:
            raise _explain(path, f"other users can replace what is in {place}, whose mode is {its_mode:04o}")


def _explain(path: Path, reason: str) -> LaunchError:
    return LaunchError(
        f"{path} cannot hold the slots of this host: {reason}. Expected a directory that all users share. When no "
        f"trial runs, remove it and type: mkdir -m 1777 {path}; or set {DIRECTORY_VARIABLE} to another directory, the "
        "same for all users"
    )
