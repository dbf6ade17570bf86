"""Output streams of commands that keep recorded text from controlling the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from det_core.tracking.printable import printable_output


class SanitizedStream:
    """Text stream that removes escape sequences. All other attributes are those of the wrapped stream."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream
        """The wrapped stream, to which rich writes. Rich moves the cursor, so callers clean the text that they draw."""

    def write(self, text: str) -> int:
        """Write the text without escape sequences."""
        self.rich_proxied_file.write(printable_output(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def sanitize_streams() -> Iterator[None]:
    """Send everything that is printed during the block through a `SanitizedStream`."""
    out, err = cast("TextIO", SanitizedStream(sys.stdout)), cast("TextIO", SanitizedStream(sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield


def unwrap_stream(stream: TextIO) -> TextIO:
    """Return the wrapped stream, for callers that move the cursor."""
    return stream.rich_proxied_file if isinstance(stream, SanitizedStream) else stream
