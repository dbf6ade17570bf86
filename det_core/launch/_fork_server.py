"""Prepared process, which has imported modules once and forks workers that then need not import them.

Usage: ``python -m det_core.launch._fork_server OWNER PRINTED MODULE...``, where OWNER is the descriptor of a socket and
PRINTED the reading end of the pipe that is stdout and stderr. `prepared_process` starts it and has the other side.

It answers with a line on the socket, as JSON: the top-level names of the modules that it has, and why it cannot serve,
or "". Then it forks for each descriptor of a connection that arrives on the socket. Each fork becomes the outer
guard of its worker, and has a connection of its own to the agent. The prepared process ends with the socket, and
nothing ends with it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import marshal
import os
import runpy
import select
import signal
import socket
import sys
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from det_core.launch import _fork_requests, _guard
from det_core.launch._fork_requests import ENDED, LENGTH, STARTED
from det_core.plugins import plugin_registry

MOST_PRINTED = 1 << 20
"""Capacity of the pipe for what the import of the modules prints, in bytes."""
_MOST_DESCRIPTORS = 253
"""Maximum number of descriptors in a message (SCM_MAX_FD)."""
_STREAMS = 3
_HUGE_PAGE = 1 << 21
"""Size of a huge page in bytes."""
_MADV_COLLAPSE = 25
"""Advice of madvise(2) to move memory to huge pages, since Linux 6.1."""
_FEWEST_FORKS = 12
"""Number of forks that take as much longer with small pages as the move to huge pages takes, 0.3 s with torch."""


def main(owner: int, printed: int, modules: Sequence[str]) -> None:
    """Import the modules, then serve. In a worker, this runs what the request names."""
    end, environment = _QuickEnd(), dict(os.environ)
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the directory of this process is not that of any user
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in _guard.default_signals():
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    with socket.socket(fileno=owner) as agent:
        problem = _prepare(modules)
        end.prepared = {*sys.modules} - {"__main__"}
        names = sorted({name.partition(".")[0] for name in end.prepared})
        agent.sendall(json.dumps([names, problem]).encode() + b"\n")
        # Forks leave what they share, such as temporary directories, to this process.
        finalizers = [*weakref.finalize._registry]  # type: ignore[attr-defined]
        for finalizer in finalizers:
            finalizer.atexit = False
        output = _read_available(printed)
        connection = None if problem else _serve(agent)
    if connection is None:
        for finalizer in finalizers:
            finalizer.atexit = True
        end.run(sys.exit)
    else:
        end.run(partial(_run_request, connection, environment, output))


def _run_request(connection: int, environment: Mapping[str, str], output: bytes) -> None:
    """Become the guards and the worker that a request asks for.

    Args:
        connection: file descriptor of the connection on which the request arrives.
        environment: environment variables of this process before it imported the modules.
        output: what their import has printed.
    """
    handlers = {number: signal.getsignal(number) or signal.SIG_DFL for number in _guard.GUARDED_SIGNALS}
    request, inherited = _receive(connection)
    leads_session, starts_others = request["leads_session"], request["starts_others"]
    _set_command_line([sys.executable, _guard.__file__, str(connection), sys.executable, "-m", *request["argv"]])
    code = _guard.guard_process(connection, request["grace"], partial(_fork_process, connection, leads_session))
    if code is not None:
        for descriptor in inherited:  # such as the lock of a slot, which is free once the end is known
            os.close(descriptor)
        with contextlib.suppress(OSError):  # the agent is gone
            os.write(connection, ENDED.pack(code))
        os._exit(0)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # now a signal has its effect that came earlier
    _renew_random_state()
    _change_environment(environment, request["env"])
    if starts_others:
        server, *inherited = inherited
        _fork_requests.server = _fork_requests.ForkServer(server, inherited)
    else:
        os.write(2, output)
    _run_module(*request["argv"])


def _prepare(modules: Sequence[str]) -> str:
    """Import the modules, and return why a fork would differ from a process that imports them itself, or ""."""
    files = _open_files()
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001  (modules may raise anything)
            return f"the import of {name} failed: {type(error).__name__}: {error}"
        if threads := _count_lost_threads():
            return f"the import of {name} started threads ({threads}), which forks would not have"
        if opened := _open_files() - files:
            return f"the import of {name} opened {', '.join(sorted(opened))}, which forks would share"
    plugin_registry()
    gc.collect()
    gc.freeze()  # a collection in a fork would copy all of the memory
    return ""


def _open_files() -> set[str]:
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the directory itself
            found.add(f"{descriptor.readlink()} as {descriptor.name}")
    return found


def _count_lost_threads() -> int:
    """Return the number of threads that forks would not have. Those of OpenBLAS end before a fork, and start again."""
    tasks = Path("/proc/self/task")
    if len([*tasks.iterdir()]) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks with threads, since Python 3.12
            child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
    return len([*tasks.iterdir()]) - 1


def _read_available(printed: int) -> bytes:
    """Return what the import of the modules has printed, and close the pipe."""
    sys.stdout.flush()
    os.set_blocking(printed, False)
    try:
        return os.read(printed, MOST_PRINTED)
    except BlockingIOError:
        return b""
    finally:
        os.close(printed)


def _serve(agent: socket.socket) -> int | None:
    """Fork for each connection, and return the connection in the fork. Return None once the agent is gone."""
    signal.signal(signal.SIGCHLD, _bury_forks)
    forks, moved = 0, _move_to_huge_pages()
    while True:
        if forks >= _FEWEST_FORKS:
            any(select.select([agent], [], [], 0)[0] for _ in moved)  # until a connection arrives
        mark, (*connections,), *_ = socket.recv_fds(agent, 1, 1)
        if not mark:
            return None
        (connection,) = connections
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return connection
        os.close(connection)
        forks += 1


def _move_to_huge_pages() -> Iterator[None]:
    """Move the memory of this process to huge pages, one at a time, if the kernel can.

    A fork copies a table with an entry per page, and therefore takes a quarter of the time then. Memory that a fork
    writes to is still copied in small pages.
    """
    madvise = ctypes.CDLL(None).madvise
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        addresses, rights, _, _, file, *name = line.split()
        if rights == "rw-p" and file == "0" and name in ([], ["[heap]"]):
            start, end = (int(address, 16) for address in addresses.split("-"))
            for page in range(-(-start // _HUGE_PAGE) * _HUGE_PAGE, end - _HUGE_PAGE + 1, _HUGE_PAGE):
                madvise(ctypes.c_void_p(page), ctypes.c_size_t(_HUGE_PAGE), _MADV_COLLAPSE)
                yield


def _bury_forks(number: int, frame: FrameType | None) -> None:
    """Wait for forks that have ended, so that the time that they used counts as used by this process."""
    with contextlib.suppress(ChildProcessError):  # none is left
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _receive(connection: int) -> tuple[dict[str, Any], list[int]]:
    """Return the request and the other descriptors that came with it, and take its streams and directory.

    This process ends instead if the agent has given up the request.
    """
    with socket.socket(fileno=connection) as agent:
        size, (*descriptors,), *_ = socket.recv_fds(agent, LENGTH.size, _MOST_DESCRIPTORS)
        body = agent.recv(LENGTH.unpack(size)[0], socket.MSG_WAITALL)
        agent.detach()
    if select.select([connection], [], [], 0)[0]:
        os._exit(0)
    request: dict[str, Any] = marshal.loads(body)  # noqa: S302  (from this user)
    os.setsid()
    for target, stream in enumerate(descriptors[:_STREAMS]):
        os.dup2(stream, target)
        os.close(stream)
    os.chdir(request["cwd"])
    return request, descriptors[_STREAMS:]


def _fork_process(connection: int, leads_session: bool) -> int:
    """Fork the process, in which all signals wait until it has its handlers, and which sends its process id."""
    guard = os.getppid()
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    process = os.fork()
    if process:
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        return process
    if leads_session:
        os.setsid()
    with contextlib.suppress(OSError):  # the agent is gone
        os.write(connection, STARTED.pack(guard, os.getpid()))
    return 0


def _renew_random_state() -> None:
    """Replace what all forks would share. Python's own generator does so itself."""
    if numpy := sys.modules.get("numpy.random"):
        numpy.seed()
    if multiprocessing := sys.modules.get("multiprocessing.process"):
        multiprocessing.current_process().authkey = os.urandom(32)


def _change_environment(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Change the environment from one to the other, except for what the import of modules has changed."""
    for name in before.keys() - after.keys():
        os.environ.pop(name, None)
    os.environ.update({name: value for name, value in after.items() if before.get(name) != value})


def _run_module(name: str, *arguments: str) -> None:
    """Do what ``python -m MODULE ARGUMENT...`` does."""
    sys.orig_argv = [sys.executable, "-m", name, *arguments]
    sys.argv = [name, *arguments]
    _set_command_line(sys.orig_argv)
    here = [] if getattr(sys.flags, "safe_path", False) else [str(Path.cwd())]
    paths = [str(Path(path).absolute()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = dict.fromkeys([*here, *paths, *sys.path])
    sys.modules["__main__"] = ModuleType("__main__")
    # What ``python -m`` itself calls.
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]


class _QuickEnd:
    """End of a worker that frees only what was made after the fork, because to free all would copy all of the memory.

    With torch, that takes 0.2 s.
    """

    def __init__(self) -> None:
        self.prepared: Collection[str] = ()
        """Names of the modules that were imported before the fork."""
        self._code: int | None = None
        atexit.register(self._end)  # called last, because handlers of the modules are registered later

    def run(self, program: Callable[[], object]) -> None:
        """Run a program, note its exit code, and show its error without the calls of this module."""
        try:
            program()
        except SystemExit as stop:
            self._code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
            raise
        except KeyboardInterrupt:  # ends by a signal
            raise
        except BaseException as error:  # noqa: BLE001  (as the interpreter does)
            trace = error.__traceback__
            while trace and trace.tb_frame.f_code.co_filename == __file__:
                trace = trace.tb_next
            sys.excepthook(type(error), error.with_traceback(trace), trace)
            self._code = 1
            sys.exit(1)
        self._code = 0

    def _end(self) -> None:
        if self._code is None:
            return
        for name in [*sys.modules]:
            if name not in self.prepared:
                del sys.modules[name]
        gc.collect()  # writes what open files still hold
        sys.stdout.flush()
        sys.stderr.flush()
        ctypes.CDLL(None).fflush(None)
        os._exit(self._code & 0xFF)


def _set_command_line(argv: Sequence[str]) -> None:
    """Replace the command line that other processes see, as far as there is room (proc(5), arg_start and arg_end)."""
    values = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    start, end = int(values[45]), int(values[46])
    if room := max(0, end - start):  # 0 if this user may not see it
        line = b"".join(os.fsencode(word) + b"\0" for word in argv)[: room - 1]
        ctypes.memmove(start, line.ljust(room, b"\0"), room)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
