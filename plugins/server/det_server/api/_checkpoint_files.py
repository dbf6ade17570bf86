"""Files of checkpoints, for clients that cannot read the storage themselves.

Clients name files by their number in the order of their paths, so that no path of a client is ever opened.
"""

from __future__ import annotations

import os
import stat
from contextlib import AbstractContextManager, ExitStack, suppress

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from det_core.core import open_storage_block
from det_core.errors import RecordNotFound
from det_core.interfaces.records import CheckpointRecord
from det_core.interfaces.storage import StorageManager
from det_core.scratch import scratch_directory
from det_core.storage import METADATA_FILE, open_below
from det_server._accounts import require_recent_admission
from det_server._admitted_sending import send_while_admitted
from det_server._json_response import JsonResponse
from det_server._shares import Shares
from det_server._site import principal_of, site_of
from det_server.pages._store_values import require_uuid

MAX_DOWNLOADS = 32
"""Maximum number of files of checkpoints that are read and sent at a time, some of which are copies on this disk."""
MAX_DOWNLOADS_PER_PERSON = 8
"""Maximum number of files of checkpoints that are read and sent to one person at a time. One program takes 4."""


class _SentFile(FileResponse):
    """Answer with an open file or a range of it, which closes the file and releases its share at the end."""

    def __init__(self, descriptor: int, ending: ExitStack) -> None:
        path, status = f"/dev/fd/{descriptor}", os.fstat(descriptor)
        super().__init__(path, media_type="application/octet-stream", stat_result=status)
        self._ending = ending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send_while_admitted(super().__call__, scope, receive, send)
        finally:
            await run_in_threadpool(self._ending.close)


def list_files(request: Request) -> Response:
    """Return the sizes of the files of a checkpoint in bytes by path."""
    with _reserve(request):
        _, _, sizes = _stored(request)
    require_recent_admission(request)
    return JsonResponse(sizes)


def send_file(request: Request) -> Response:
    """Send a file of a checkpoint, or the range of it that the request names."""
    with ExitStack() as stack:
        stack.enter_context(_reserve(request))
        checkpoint, manager, sizes = _stored(request)
        number = request.path_params["number"]
        if number >= len(sizes):
            raise RecordNotFound(f"checkpoint {checkpoint.uuid} has {len(sizes)} files; expected a number below that")
        name = sorted(sizes)[number]
        request.app.state.download_log.record(request, checkpoint.uuid)
        descriptor = _open_file(manager, checkpoint.uuid, name, stack)
        require_recent_admission(request)  # the storage may be slow
        return _SentFile(descriptor, stack.pop_all())


def _reserve(request: Request) -> AbstractContextManager[None]:
    shares: Shares = request.app.state.downloads
    person = principal_of(request).name
    return shares.reserve(
        person,
        each=MAX_DOWNLOADS_PER_PERSON,
        total=MAX_DOWNLOADS,
        refusal=f"{shares.of(person)} downloads of {person} and {shares.total} in all are under way; "
        "try again in a moment",
    )


def _stored(request: Request) -> tuple[CheckpointRecord, StorageManager, dict[str, int]]:
    """Return a checkpoint, the storage of its experiment, and the sizes of its files.

    Workers record any storage for a checkpoint, such as another host with the secrets of other people in its URL. So
    the config of the experiment counts, which only those write who may run code on the server.

    Raises:
        RecordNotFound: there is no such checkpoint, or it has no metadata.json. Other directories are never served.
    """
    store = site_of(request).store
    checkpoint = store.checkpoint(require_uuid(request.path_params["uuid"]))
    experiment = store.experiment(store.trial(checkpoint.trial_id).experiment_id)
    if block := experiment.config.get("checkpoint_storage"):
        manager = open_storage_block(block).with_few_retries()
        sizes = manager.list(checkpoint.uuid)
        if METADATA_FILE in sizes:
            return checkpoint, manager, sizes
    raise RecordNotFound(
        f"the checkpoint_storage of experiment {experiment.id} has no complete checkpoint {checkpoint.uuid} here"
    )


def _open_file(manager: StorageManager, uuid: str, name: str, stack: ExitStack) -> int:
    """Open a file of a checkpoint in place, or a copy of it that is removed with the stack, and return the descriptor.

    Raises:
        RecordNotFound: it is a directory, a link out of the checkpoint or gone.
    """
    directory, path = manager.local_path(uuid), name
    if directory is None:
        directory, path = stack.enter_context(scratch_directory("download")), "file"
        with suppress(FileNotFoundError):
            manager.get(uuid, name, directory / path)
    real, place = os.path.realpath(directory / path), os.path.realpath(directory)
    if real.startswith(place + os.sep):
        path = os.path.relpath(real, place)
    try:
        descriptor = open_below(directory, path)  # a worker may put another link there at any moment
    except OSError as error:
        raise RecordNotFound(f"{name} of checkpoint {uuid} cannot be read: {error.strerror}") from None
    stack.callback(os.close, descriptor)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise RecordNotFound(f"{name} of checkpoint {uuid} is no file")
    return descriptor
