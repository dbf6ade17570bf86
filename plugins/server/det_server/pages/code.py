"""Page with the config and the code of an experiment."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from det_core.launch.context_archive import open_archive
from det_core.text import mask_references, to_json_compatible
from det_server._refusal import RefusedError
from det_server._rendering import render_page
from det_server._threads import Work, in_threads
from det_server.pages._code_diff import Budget, CodeDiff, diff_archives
from det_server.pages._live_page import live
from det_server.pages._store_values import experiment_of, parse_ids, store_of
from det_server.pages.experiment import experiment_head

if TYPE_CHECKING:
    from det_core.interfaces.tracking import TrackingStore

MOST_CODES = 5
"""Maximum number of experiments whose code is compared."""
_MOST_FILES = 2000
_MOST_TEXT = 200_000
"""Maximum number of characters of a file that is shown."""
MOST_YAML = 64 << 10
"""Maximum number of characters as JSON of a config that is shown as YAML, which takes a hundred times as long."""


@dataclass(frozen=True)
class CodeFile:
    """A file in the code of an experiment.

    Args:
        number: position in the archive, by which pages ask for it.
        name: path in the archive.
        size: size in bytes.
    """

    number: int
    name: str
    size: int


def show_code(request: Request) -> Response:
    """Show the config of an experiment, the list of its files, and the text of the chosen one."""
    experiment = experiment_of(request)
    chosen = request.query_params.get("file", "")
    wanted = int(chosen) if chosen.isascii() and chosen.isdigit() and len(chosen) < 6 else None
    files, text = _read_archive(store_of(request).model_definition(experiment.id), wanted)
    return render_page(
        request,
        "code.html",
        **experiment_head(request, experiment),
        original=mask_references(experiment.original_config),
        complete=_config_text(experiment.config),
        files=files,
        chosen=next((one for one in files if one.number == wanted), None),
        text=text,
    )


def show_code_differences(request: Request) -> Response:
    """Show how the code of experiments differs from that of the first one that the URL names."""
    store = store_of(request)
    named = parse_ids(",".join(request.query_params.getlist("experiments")), MOST_CODES)
    experiments = [store.experiment(one) for one in named]
    if len(experiments) < 2:
        raise RefusedError(400, "expected two experiments or more, such as ?experiments=3,7")
    differences = code_differences(store, named)
    return render_page(request, "code_diff.html", experiments=experiments, differences=differences)


def code_differences(store: TrackingStore, experiment_ids: Sequence[int]) -> list[tuple[int, CodeDiff]]:
    """Return how the code of each experiment but the first one differs from that of the first one.

    Args:
        store: the tracking store.
        experiment_ids: the experiments, of which the first `MOST_CODES` count.
    """
    if len(experiment_ids) < 2:
        return []
    first, *others = experiment_ids[:MOST_CODES]
    code, budget = store.model_definition(first), Budget()
    return [(one, diff_archives(code, store.model_definition(one), budget)) for one in others]


def download_code(request: Request) -> Response:
    """Return the code of an experiment as a compressed tar file."""
    experiment = experiment_of(request)
    archive = store_of(request).model_definition(experiment.id)
    if not archive:
        raise RefusedError(404, f"experiment {experiment.id} has no code")
    headers = {"Content-Disposition": f'attachment; filename="experiment-{experiment.id}.tar.gz"'}
    return Response(archive, media_type="application/gzip", headers=headers)


def _config_text(config: Mapping[str, Any]) -> str:
    """Return a config as YAML, or as JSON if it is large."""
    values = to_json_compatible(config)
    text = json.dumps(values, ensure_ascii=False)
    return text if len(text) > MOST_YAML else yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def _read_archive(archive: bytes, wanted: int | None) -> tuple[list[CodeFile], str]:
    """Return the files of an archive, and the text of the wanted one, without unpacking any."""
    files: list[CodeFile] = []
    text = ""
    if not archive:
        return files, text
    try:
        with open_archive(archive) as members:
            for number, member in enumerate(members):
                if len(files) == _MOST_FILES:
                    break
                if not member.isfile():
                    continue
                files.append(CodeFile(number, member.name, member.size))
                if number == wanted and (content := members.extractfile(member)):
                    text = _shown_text(content.read(_MOST_TEXT))
    except tarfile.TarError as error:
        return files, f"The archive is damaged: {error}"
    return sorted(files, key=lambda one: one.name), text


def _shown_text(content: bytes) -> str:
    if b"\0" in content:
        return "This file is not text. Download the code to read it."
    more = "\n…" if len(content) == _MOST_TEXT else ""
    return content.decode(errors="replace") + more


ROUTES = [
    Route("/compare/code", in_threads(Work.CODE, live(show_code_differences))),
    Route("/experiments/{id:int}/code", in_threads(Work.CODE, live(show_code))),
    Route("/experiments/{id:int}/code.tar.gz", in_threads(Work.CODE, download_code)),
]
