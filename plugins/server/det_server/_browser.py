"""Opening of the user's browser, without showing the token of the URL to other users."""

from __future__ import annotations

import os
import threading
import webbrowser
from html import escape

from det_core.home import private_directory

_KEPT_SECONDS = 60.0
"""Time that a browser has to read the file."""


def open_browser(url: str) -> None:
    """Open a URL with a token in a browser, in the background.

    All users of the host can read the arguments of the browser. They contain a private file, which leads to the URL.
    """
    path = private_directory("server") / f"open-{os.getpid()}.html"
    target = escape(url, quote=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={target}"><a href="{target}">det</a>\n')

    def show() -> None:
        webbrowser.open(path.as_uri())
        timer = threading.Timer(_KEPT_SECONDS, lambda: path.unlink(missing_ok=True))
        timer.daemon = True
        timer.start()

    threading.Thread(target=show, name="det-browser", daemon=True).start()
