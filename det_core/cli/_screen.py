"""The output of commands, through which no recorded text reaches the terminal as a command to it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from det_core.tracking.printable import printable_output


class Screen:
    """A text stream that writes only what is safe to show; everything else is that of the stream behind it."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream
        """The stream that rich writes to. Rich moves the cursor, so callers clean the text that they draw with it."""

    def write(self, text: str) -> int:
        """Write the text without escape sequences."""
        self.rich_proxied_file.write(printable_output(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def shielded() -> Iterator[None]:
    """Let everything that is printed meanwhile pass a `Screen`."""
    out, err = cast("TextIO", Screen(sys.stdout)), cast("TextIO", Screen(sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield


def drawing_on(stream: TextIO) -> TextIO:
    """Return the stream itself, for who moves the cursor."""
    return stream.rich_proxied_file if isinstance(stream, Screen) else stream
