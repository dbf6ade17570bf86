"""Page of what a trial reported beside numbers: images, histograms, texts and files of its TensorBoard directory."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from det_core.core import open_storage_block
from det_core.errors import SecretMissing, StorageError
from det_core.interfaces.records import TrialRecord
from det_core.storage import open_below
from det_server._event_files import (
    MOST_SECONDS,
    Histogram,
    Kind,
    Reported,
    decode_histogram,
    decode_image,
    decode_text,
    index_file,
    read_content,
)
from det_server._refusal import RefusedError
from det_server._rendering import query_string, render_page
from det_server._site import site_of
from det_server._threads import Work, in_threads
from det_server.pages._store_values import parse_number, store_of, trial_of

_MOST_FILES = 500
_MOST_INDEXES = 16
"""Number of trials whose index is kept in memory."""
_BINS, _WIDTH, _HEIGHT = 40, 400.0, 120.0
_MOST_STEPS = 1000
_MOST_ROWS, _MOST_CELLS = 200, 50
_EVENTS = "tfevents"
_IMAGE_HEADERS = {"Content-Security-Policy": "default-src 'none'; sandbox", "Content-Disposition": "inline"}


@dataclass(frozen=True)
class _Media:
    """TensorBoard directory of a trial on this machine.

    Args:
        root: directory of the storage, below which all paths are.
        folder: path of the directory of the trial.
        sizes: sizes of the other files by path below the folder.
        found: what the event files have, by name.
        is_whole: whether all of them were read.
    """

    root: Path
    folder: str
    sizes: dict[str, int]
    found: dict[str, Reported]
    is_whole: bool = True

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        """Open a file of the directory without following links."""
        with os.fdopen(open_below(self.root, f"{self.folder}/{path}"), "rb") as file:
            yield file


@dataclass(frozen=True)
class ShownMedium:
    """What was reported under one name, at one step."""

    tag: str
    kind: str
    step: int
    steps: list[int]
    image: str = ""
    text: str = ""
    table: list[list[str]] | None = None
    bars: list[tuple[float, float, float, float]] | None = None
    """Left, top, width and height of the bars of a histogram."""
    about: str = ""


_indexes: OrderedDict[tuple[object, ...], tuple[dict[str, Reported], bool]] = OrderedDict()
_lock = threading.Lock()


def show_media(request: Request) -> Response:
    """Show what a trial reported beside numbers, at the steps that the URL names."""
    trial = trial_of(request)
    experiment = store_of(request).experiment(trial.experiment_id)
    media, reason = _read_media(request, trial)
    return render_page(
        request,
        "media.html",
        trial=trial,
        experiment=experiment,
        media=_show_found(media, trial, request.query_params) if media else [],
        files=sorted(media.sizes.items()) if media else [],
        reason=reason,
        is_whole=media.is_whole if media else True,
    )


def _show_found(media: _Media, trial: TrialRecord, query: Mapping[str, str]) -> list[ShownMedium]:
    """Return what a trial reported under each name, at the newest step but for the name and the step of the query."""
    step = parse_number(query.get("step", ""), default=-1, most=2**63)
    deadline = time.monotonic() + MOST_SECONDS
    shown = (
        _shown(media, trial, tag, one, step if tag == query.get("tag") else -1, deadline)
        for tag, one in sorted(media.found.items())
    )
    return [one for one in shown if one]


def send_image(request: Request) -> Response:
    """Send an image that a trial reported, if it is of a known format."""
    trial, query = trial_of(request), request.query_params
    media, _ = _read_media(request, trial)
    tag, step = query.get("tag", ""), parse_number(query.get("step", ""), default=-1, most=2**63)
    content = _content(media, tag, step, Kind.IMAGE) if media else None
    try:
        image = decode_image(content) if content else None
    except ValueError:
        image = None
    if not image:
        raise RefusedError(404, "there is no such image, or it is not PNG, JPEG, GIF or WebP")
    return Response(image[0], media_type=image[1], headers=_IMAGE_HEADERS)


def _read_media(request: Request, trial: TrialRecord) -> tuple[_Media | None, str]:
    """Return the TensorBoard directory of a trial, or None and why this server does not read it, or ""."""
    store = site_of(request).store
    block = store.experiment(trial.experiment_id).config.get("checkpoint_storage")
    if not isinstance(block, Mapping) or not block:
        return None, ""
    try:
        manager = open_storage_block(block)
    except SecretMissing:
        return None, "The files cannot be read: this server has no secrets for their storage."
    except StorageError as error:
        return None, f"The files cannot be read: {error}"
    root = manager.local_path(store.cluster_id)
    if root is None:
        location = manager.location(store.cluster_id)
        return None, f"The files are at {location}, which this server does not read for pages."
    folder = f"tensorboard/experiment/{trial.experiment_id}/trial/{trial.id}"
    if (root / folder).resolve() != root.resolve() / folder:
        return None, ""  # a worker has put a link there
    files = dict(islice(_list_files(root / folder), _MOST_FILES))
    events = {path: version for path, version in files.items() if _EVENTS in path}
    others = {path: size for path, (size, _) in files.items() if path not in events}
    return _Media(root, folder, others, *_index(root, folder, events)), ""


def _list_files(directory: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the paths of the files of a directory, with their size and time of modification."""
    for place, directories, names in os.walk(directory):
        directories.sort()
        for name in sorted(names):
            path = Path(place, name)
            try:
                status = path.lstat()
            except FileNotFoundError:  # removed since
                continue
            yield path.relative_to(directory).as_posix(), (status.st_size, status.st_mtime_ns)


def _index(root: Path, folder: str, events: dict[str, tuple[int, int]]) -> tuple[dict[str, Reported], bool]:
    """Return what event files have, and whether all were read. The last results stay in memory until files change."""
    key = (str(root), folder, tuple(sorted(events.items())))
    with _lock:
        if key in _indexes:
            _indexes.move_to_end(key)
            return _indexes[key]
    found: dict[str, Reported] = {}
    media, deadline = _Media(root, folder, {}, found), time.monotonic() + MOST_SECONDS
    for path in sorted(events):
        try:
            with media.open(path) as file:
                index_file(file, path, found, deadline)
        except OSError:  # a link, or removed since
            continue
    with _lock:
        _indexes[key] = index = found, time.monotonic() < deadline
        while len(_indexes) > _MOST_INDEXES:
            _indexes.popitem(last=False)
    return index


def _content(media: _Media, tag: str, step: int, kind: Kind) -> memoryview | None:
    reported = media.found.get(tag)
    place = reported.places.get(step) if reported and reported.kind is kind else None
    if place is None:
        return None
    try:
        with media.open(place.path) as file:
            return read_content(file, place, tag, kind)
    except OSError:
        return None


def _shown(
    media: _Media, trial: TrialRecord, tag: str, reported: Reported, step: int, deadline: float
) -> ShownMedium | None:
    """Return what was reported under a name at a step, or at the last one if there is nothing at that step."""
    if not reported.places:
        return None
    steps = sorted(reported.places)
    step = step if step in reported.places else steps[-1]
    values: dict[str, Any] = {}
    if reported.kind is Kind.IMAGE:
        values = {"image": f"/data/trials/{trial.id}/image{query_string({'tag': tag, 'step': str(step)})}"}
    elif time.monotonic() > deadline:
        values = {"text": "It is not shown, because reading this page took too long."}
    elif content := _content(media, tag, step, reported.kind):
        try:
            values = (
                _text_values(decode_text(content)) if reported.kind is Kind.TEXT else _bars(decode_histogram(content))
            )
        except ValueError:
            values = {}
    return ShownMedium(tag, reported.kind.value, step, steps[-_MOST_STEPS:], **(values or {"text": "It is damaged."}))


def _text_values(text: str) -> dict[str, Any]:
    """Return a text, or its table if it is one in Markdown."""
    lines = [line.strip() for line in text.strip().splitlines()]
    if len(lines) > 1 and all(line.startswith("|") for line in lines):
        rows = [[cell.strip() for cell in line.strip("|").split("|")[:_MOST_CELLS]] for line in lines[: _MOST_ROWS + 2]]
        is_ruled = set("".join(rows[1])) <= set("-: ")
        return {"table": [rows[0], *rows[2 if is_ruled else 1 :]]}
    return {"text": text}


def _bars(histogram: Histogram | None) -> dict[str, Any]:
    """Return the bars of a histogram with ranges of equal width, and its ends in words."""
    if histogram is None:
        return {}
    low, high = histogram.edges[0], histogram.edges[-1]
    width, bins = (high - low) / _BINS, [0.0] * _BINS
    if width == 0:
        return {"text": f"All {sum(histogram.counts):.0f} values are {low:.4g}."}
    for left, right, count in zip(histogram.edges, histogram.edges[1:], histogram.counts, strict=False):
        first = min(int((left - low) / width), _BINS - 1)
        last = min(int((right - low) / width), _BINS - 1)
        for number in range(first, last + 1):
            start, end = low + number * width, low + (number + 1) * width
            share = (min(end, right) - max(start, left)) / (right - left) if right > left else 1 / (last - first + 1)
            bins[number] += count * max(share, 0.0)
    tallest = max(bins) or 1.0
    step = _WIDTH / _BINS
    bars = [
        (
            round(number * step, 1),
            round(_HEIGHT * (1 - count / tallest), 1),
            round(step - 1, 1),
            round(_HEIGHT * count / tallest, 1),
        )
        for number, count in enumerate(bins)
        if count
    ]
    return {"bars": bars, "about": f"{low:.4g} to {high:.4g}, {sum(histogram.counts):.0f} values"}


ROUTES = [
    Route("/trials/{id:int}/media", in_threads(Work.DOWNLOADS, show_media)),
    Route("/data/trials/{id:int}/image", in_threads(Work.DOWNLOADS, send_image)),
]
