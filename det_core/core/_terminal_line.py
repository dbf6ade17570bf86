"""Last line of a terminal, which stays below everything that the process prints."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterable
from typing import Any, TextIO

_CLEAR = "\r\x1b[K"
_NARROWEST = 80
"""Width in columns of a terminal that does not say how wide it is."""

_lock = threading.RLock()
# A child that is forked while another thread draws must not wait for that thread, which it does not have.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class TerminalLine:
    """Line that is redrawn on stderr, and erased before the process prints something else.

    It is not drawn after a text that does not end its line, such as a prompt or a progress bar of the script.

    Args:
        stream: the terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._drawn = False
        self._at_start = True
        self._replaced = {
            name: _Above(getattr(sys, name), self)
            for name in ("stdout", "stderr")
            if getattr(sys, name) and getattr(sys, name).isatty()
        }
        for name, above in self._replaced.items():
            setattr(sys, name, above)
            _redirect_log(above.stream, above)

    @property
    def width(self) -> int:
        """Width of the terminal in columns."""
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _NARROWEST
        except OSError:
            return _NARROWEST

    def draw(self, text: str) -> None:
        """Replace the line. The text must be shorter than the terminal is wide."""
        with _lock:
            if self._at_start:
                self._drawn = True
                self._stream.write(_CLEAR + text)
                self._stream.flush()

    def close(self) -> None:
        """Erase the line, and let the process print as before."""
        with _lock:
            self.release()
            self._erase()

    def release(self) -> None:
        """Let the process print as before, without writing anything."""
        with _lock:
            for name, above in self._replaced.items():
                if getattr(sys, name) is above:
                    setattr(sys, name, above.stream)
                _redirect_log(above, above.stream)

    def _erase(self) -> None:
        if self._drawn:
            self._drawn = False
            self._stream.write(_CLEAR)
            self._stream.flush()

    def _flush(self, stream: TextIO) -> None:
        with _lock:
            self._erase()  # input() and debuggers flush, and then write their prompt without this object
            stream.flush()

    def _print(self, stream: TextIO, text: str) -> int:
        with _lock:
            self._erase()
            if text:
                self._at_start = text.endswith("\n")
            return stream.write(text)


class _Above:
    """Stream of the process whose output appears above the line."""

    def __init__(self, stream: TextIO, line: TerminalLine) -> None:
        self.stream = stream
        self._line = line

    def write(self, text: str) -> int:
        return self._line._print(self.stream, text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self._line._flush(self.stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _redirect_log(old: Any, new: Any) -> None:
    """Replace the stream of the root logger's handlers, which keep the stream that they were made with."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is old:
            handler.setStream(new)
