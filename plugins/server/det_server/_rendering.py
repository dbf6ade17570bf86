"""Rendering of pages from templates with automatic escaping, the filters of templates, and pages about errors."""

from __future__ import annotations

import hashlib
from datetime import datetime, timezone
from enum import Enum
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from textwrap import shorten
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from det_core.interfaces.records import STATE_WORDS, CheckpointState
from det_core.json_values import name_non_finite
from det_core.text import format_count, format_size, format_slot_hours, format_value, mask_references
from det_core.tracking.printable import printable_text
from det_server._ansi_text import colored_segments

STATIC_DIRECTORY = Path(__file__).parent / "static"
"""Directory of style sheets and scripts."""
_LONGEST_TEXT = 10_000
"""Maximum number of characters of one value on a page."""
_LONGEST_EXCERPT = 120
_MOST_IN_VIEW = 8
"""Number of chosen columns up to which a table fits in a window. Wider ones are scrolled."""
_PLACES = (("/experiments", "Experiments"), ("/compare", "Compare"), ("/models", "Models"), ("/plugins", "Plugins"))
_ADMIN_PLACES = (("/users", "Users"), ("/audit", "Audit"))


def render_page(request: Request, template: str, *, status_code: int = 200, **context: Any) -> Response:
    """Render a template to a response.

    Args:
        request: the request, whose site and principal the templates use.
        template: file name of the template.
        status_code: HTTP status of the response.
        context: values for the template.
    """
    site = request.app.state.site
    principal = getattr(request.state, "principal", None)
    places = _PLACES + (_ADMIN_PLACES if principal and principal.is_admin and site.has_users else ())
    cursor = getattr(request.state, "cursor", "")
    known = {"site": site, "principal": principal, "path": request.url.path, "places": places, "cursor": cursor}
    text = _environment().get_template(template).render(**known, **context)
    return HTMLResponse(text.encode(errors="replace"), status_code=status_code)


def render_text(template: str, **context: Any) -> str:
    """Render a template that is no page of a site.

    Args:
        template: file name of the template.
        context: values for the template.
    """
    return _environment().get_template(template).render(**context)


def render_error(request: Request, status_code: int, message: str, hint: str) -> Response:
    """Render a page about an error.

    Args:
        request: the request that failed.
        status_code: HTTP status of the response.
        message: what was wrong.
        hint: what to do next.
    """
    title = HTTPStatus(status_code).phrase
    return render_page(request, "error.html", status_code=status_code, title=title, message=message, hint=hint)


def asset_url(name: str) -> str:
    """Return the URL of a static file, with a hash of its contents so that browsers may keep it forever."""
    return f"/static/{name}?v={_asset_hash(name)}"


@lru_cache(maxsize=64)
def _asset_hash(name: str) -> str:
    return hashlib.sha256((STATIC_DIRECTORY / name).read_bytes()).hexdigest()[:12]


def format_number(value: object) -> str:
    """Format a number with four significant digits, and other values as text in one line."""
    if value is None or value == "":
        return "–"  # noqa: RUF001
    if isinstance(value, bool) or not isinstance(value, int | float):
        return clean_text(value)
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u2009") if abs(value) >= 10_000 else str(value)
    text = f"{value:.4g}"
    mantissa, mark, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}".replace("-", "−") if mark else text.replace("-", "−")  # noqa: RUF001


def format_metric(value: float | None) -> str:
    """Format a value of a metric with four significant digits, trailing zeros included, so that columns line up."""
    if not isinstance(value, float):
        return format_number(value)
    text = f"{value:#.4g}".rstrip(".")
    return format_number(value) if "e" in text or "n" in text else text.replace("-", "−")  # noqa: RUF001


def format_divergence(step: int, value: float) -> str:
    """Format since when a metric is NaN or infinite.

    Args:
        step: number of batches of the first such report.
        value: value of that report.
    """
    return f"{name_non_finite(value)} since batch {format_number(step)}"


def format_excerpt(text: str) -> str:
    """Return the beginning of a text of unknown origin, in one line."""
    return shorten(clean_text(text), _LONGEST_EXCERPT, placeholder="…")


def format_duration(seconds: float, *, is_over: bool) -> str:
    """Format a time in its two greatest units, of which seconds are shown once it is over."""
    seconds = max(round(seconds), 0)
    days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
    if days:
        return f"{days} d {hours:02} h"
    if hours:
        return f"{hours} h {minutes:02} min"
    if minutes:
        return f"{minutes} min {seconds % 60:02} s" if is_over else f"{minutes} min"
    return f"{seconds} s" if is_over else "< 1 min"


def format_percent(share: float) -> str:
    """Format a share of 0 to 1 in percent."""
    return f"{share:.0%}".replace("%", "\u2009%")


def state_word(state: Enum) -> str:
    """Return the word for a state in running text."""
    if state is CheckpointState.ACTIVE:  # equals State.ACTIVE, which has another word
        return "being saved"
    return STATE_WORDS.get(state.value, str(state.value).lower().replace("_", " "))


def clean_text(value: object) -> str:
    """Return text of unknown origin in one line, without escape sequences, references to secrets, and NULs."""
    return printable_text(mask_references(str(value)))[:_LONGEST_TEXT]


def format_day(moment: datetime) -> str:
    """Format a time in the zone of the server, to the minute."""
    return format_value(moment).rpartition(":")[0]


def format_moment(moment: datetime) -> str:
    """Format a time as ISO 8601 in UTC."""
    return moment.astimezone(timezone.utc).isoformat(timespec="seconds")


def query_string(values: dict[str, Any], **changes: Any) -> str:
    """Return the query of a URL with some values changed. Empty values are left out."""
    merged = {**values, **changes}
    query = urlencode(
        {name: value for name, value in merged.items() if value not in (None, "", False)}, doseq=True, errors="replace"
    )
    return f"?{query}" if query else "?"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("det_server"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        number=format_number,
        metric=format_metric,
        percent=format_percent,
        size=format_size,
        slot_hours=format_slot_hours,
        word=state_word,
        clean=clean_text,
        day=format_day,
        moment=format_moment,
        segments=colored_segments,
        literal=repr,
    )
    environment.globals.update(asset=asset_url, query=query_string, count=format_count, most_in_view=_MOST_IN_VIEW)
    environment.globals["ui"] = environment.get_template("macros.html").module
    return environment
