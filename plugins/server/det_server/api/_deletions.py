"""Deletion of files in the storage of the server, for clients that do not have it.

Only the storage of an experiment's config is opened. A request is answered within seconds: its client repeats it until
the files are gone. The runner is imported when it is used, because that takes half a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from det_core.interfaces.records import CheckpointState
from det_server._accounts import record_action, require_admission, require_ownership, require_writer
from det_server._json_response import JsonResponse
from det_server._refusal import RefusedError
from det_server._shares import Shares
from det_server._site import principal_of, site_of
from det_server._threads import Threads, Work, person_of
from det_server.api._json_body import JsonBody
from det_server.pages._store_values import require_uuid

MAX_DELETIONS_PER_PERSON = 8
"""Maximum number of deletions of one person that are under way or wait for others. One program has one."""
_ANSWER_SECONDS = 20.0
"""Time after which a request is answered although its deletion goes on."""

_log = logging.getLogger("det.server")


class Deletions:
    """Deletions that are under way, whether or not somebody waits for them.

    Args:
        threads: threads of the server.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._shares = Shares()
        self._tasks: dict[Hashable, asyncio.Task[Mapping[str, int]]] = {}

    async def wait(
        self, name: Hashable, delete: Callable[[], Mapping[str, int]], person: str | None
    ) -> Mapping[str, int] | None:
        """Return what a deletion leaves, or None if it takes longer. Requests of the same name wait for the same one.

        Args:
            name: name of the deletion.
            delete: function that deletes, called if there is none of this name.
            person: the person, as for `Threads.run`.

        Raises:
            RefusedError: the person has too many others.
        """
        task = self._tasks.get(name) or self._begin(name, delete, person)
        await asyncio.wait({task}, timeout=_ANSWER_SECONDS)
        return task.result() if task.done() else None

    def _begin(
        self, name: Hashable, delete: Callable[[], Mapping[str, int]], person: str | None
    ) -> asyncio.Task[Mapping[str, int]]:
        if not self._shares.take(person, each=MAX_DELETIONS_PER_PERSON):
            message = f"{MAX_DELETIONS_PER_PERSON} other deletions of yours are under way; try again in a moment"
            raise RefusedError(503, message, {"retry-after": "1"})
        task = self._tasks[name] = asyncio.create_task(self._threads.run(Work.DELETIONS, delete, person=person))
        task.add_done_callback(partial(self._forget, name, person))
        return task

    def _forget(self, name: Hashable, person: str | None, task: asyncio.Task[Mapping[str, int]]) -> None:
        self._shares.give_back(person)
        del self._tasks[name]
        if not task.cancelled() and (error := task.exception()):
            _log.warning("a deletion failed: %s", error)


async def delete_checkpoint(request: Request) -> Response:
    """Delete the files of a checkpoint, or those that match, and change its record."""
    uuid = require_uuid(request.path_params["uuid"])
    store = site_of(request).store

    def delete() -> Mapping[str, int]:
        from det_core.runner import check_deletable, remove_checkpoint

        body = JsonBody(request)  # in the thread, because one takes up to a second
        globs, checkpoint = _read_globs(body), store.checkpoint(uuid)
        if checkpoint.state is not CheckpointState.DELETED:  # else a request is repeated until no files are left
            check_deletable(store, checkpoint, lease=body.get("lease", str, None) or "")
        record_action(request, "delete", f"checkpoint {uuid}")
        return remove_checkpoint(store, checkpoint, globs, is_shared=True, on_deleted=lambda _: None)

    return await _answer(request, delete, uuid=uuid)


def _read_globs(body: JsonBody) -> list[str]:
    globs = body.get("globs", list, None) or []
    if not all(isinstance(glob, str) for glob in globs):
        raise RefusedError(400, "globs: expected a list of texts such as optimizer/")
    return globs


async def delete_tensorboard_files(request: Request) -> Response:
    """Delete the TensorBoard files of an experiment."""
    experiment_id = request.path_params["experiment_id"]
    store = site_of(request).store

    def delete() -> Mapping[str, int]:
        from det_core.runner import remove_tensorboard_files

        record_action(request, "delete", f"TensorBoard files of experiment {experiment_id}")
        remove_tensorboard_files(store, store.experiment(experiment_id))
        return {}

    return await _answer(request, delete, experiment_id=experiment_id)


async def _answer(request: Request, delete: Callable[[], Mapping[str, int]], **record: object) -> Response:
    """Answer with what is left, once the deletion is done.

    Args:
        request: the request.
        delete: function that deletes.
        record: the record whose owner may delete, as for `require_ownership`.
    """
    threads: Threads = request.app.state.threads
    deletions: Deletions = request.app.state.deletions
    person = person_of(request)

    def delete_if_admitted() -> Mapping[str, int]:
        require_admission(request)  # it may have waited for others
        return delete()

    await threads.run(Work.CHANGES, partial(_check_rights, request, **record), person=person)
    # With the caller, or a person would get the refusal of another one.
    name = (principal_of(request), request.url.path, request.state.body)
    left = await deletions.wait(name, delete_if_admitted, person)
    return JsonResponse({"done": left is not None, "left": left or {}})


def _check_rights(request: Request, **record: object) -> None:
    require_writer(request)
    require_ownership(request, "deleting it", **record)
