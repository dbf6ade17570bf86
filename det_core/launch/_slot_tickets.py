"""Tickets of the trials that wait for slots or hold some.

A ticket is a file that its trial has locked, so that the ticket of a dead trial is ignored. It orders the queue and
tells people who holds a slot. Slots themselves are protected by their own locks, whatever a ticket says.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from det_core.launch._slot_directory import TICKET_PREFIX, SlotDirectory

RESPONSE_SECONDS = 30.0
"""Seconds without a poll after which a waiting process counts as stopped, so that others may go first."""


HOME_PATTERN = r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{0,4096}"
"""Pattern of the paths that a ticket may have, which a terminal can show."""


@dataclass(frozen=True, kw_only=True)
class Ticket:
    """Content of a ticket.

    Attributes:
        slots: names of the slots that the trial may use.
        count: number of slots that it needs.
        held: names of the slots that it holds, none while it waits.
        priority: 1 to 99; smaller numbers go first.
        submitted: time of submission in seconds since 1970. Within a priority, the earliest goes first.
        since: time since which it waits or holds the slots.
        cluster_id: id of the tracking store.
        experiment_id: id of the experiment in this store.
        trial_id: id of the trial in this store.
        pid: id of the process that waits or has started the trial.
        process_start: `process_start_time` of this process.
        home: ``DET_HOME`` of this process, or "" if it is not known or has special characters.
    """

    slots: tuple[str, ...]
    count: int
    held: tuple[str, ...] = ()
    priority: int
    submitted: float
    since: float
    cluster_id: str
    experiment_id: int
    trial_id: int
    pid: int
    process_start: str
    home: str = ""

    def to_json(self) -> bytes:
        """Return the content of the file."""
        return json.dumps(asdict(self)).encode()


def parse_ticket(text: bytes) -> Ticket | None:
    """Return the content of a file, or None if it is not that of a ticket.

    Everything is bounded, because another user may have written it. Unknown keys, of a newer release, are ignored.
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):  # half written, or another user's mistake
        return None
    if not isinstance(values, Mapping):
        return None
    values = {"home": "", **values}  # a ticket of an older release has none
    if not all(is_valid(values.get(key)) for key, is_valid in _CHECKS.items()):
        return None
    known: dict[str, Any] = {key: tuple(value) if isinstance(value := values[key], list) else value for key in _CHECKS}
    ticket = Ticket(**known)
    return ticket if ticket.count <= len(ticket.slots) else None  # others would wait for such a trial forever


def _is_number(least: int, end: int, value: Any, *, kinds: tuple[type, ...] = (int,)) -> bool:
    return type(value) in kinds and least <= value < end


def _is_text(pattern: str, value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(_is_text(r"[A-Za-z0-9._-]{1,100}", name) for name in value)


_is_id = partial(_is_number, 0, 1 << 63)
_is_time = partial(_is_number, 0, 1 << 33, kinds=(int, float))  # until the year 2242
_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "slots": _is_names,
    "count": partial(_is_number, 1, 1 << 16),
    "held": _is_names,
    "priority": partial(_is_number, 1, 100),
    "submitted": _is_time,
    "since": _is_time,
    "cluster_id": partial(_is_text, r"[A-Za-z0-9-]{0,64}"),
    "experiment_id": _is_id,
    "trial_id": _is_id,
    "pid": _is_id,
    "process_start": partial(_is_text, r"[0-9]{0,20}"),
    "home": partial(_is_text, HOME_PATTERN),
}


@dataclass(frozen=True)
class LockedTicket:
    """Ticket of a living process.

    Attributes:
        name: name of its file.
        user: name of the user who wrote it, or the id of one without a name.
        responding: whether it holds slots, or its process has polled recently.
        content: its content.
    """

    name: str
    user: str
    responding: bool
    content: Ticket

    def __str__(self) -> str:
        return f"experiment {self.content.experiment_id} of {self.user}, trial {self.content.trial_id}"

    def name_for(self, reader: Ticket) -> str:
        """Return the name of the trial, with its ``DET_HOME`` if the reader has another tracking store."""
        home = self.content.home if self.content.cluster_id != reader.cluster_id else ""
        return f"{self}{f' (DET_HOME={home})' if home else ''}"


def read_tickets(directory: SlotDirectory) -> list[LockedTicket]:
    """Return the readable tickets of living processes, in the order of the queue."""
    return sorted(_read_all(directory), key=_place)


def select_ahead(tickets: Iterable[LockedTicket], name: str, ticket: Ticket) -> list[LockedTicket]:
    """Return the tickets whose trials wait and go before another one, except for those that do not respond.

    Args:
        tickets: tickets in the order of the queue.
        name: name of the file of the other one's ticket.
        ticket: its content.
    """
    place = _place(LockedTicket(name, "", responding=True, content=ticket))
    return [one for one in tickets if one.responding and not one.content.held and _place(one) < place]


def subtract_claims(free: Collection[str], ahead: Iterable[LockedTicket]) -> set[str]:
    """Return the free slots that no trial ahead claims.

    A trial claims as many as it needs of the free slots that it may use, also if there are too few yet. It thereby
    collects several slots although others need one.
    """
    left = set(free)
    for ticket in (one.content for one in ahead):
        left.difference_update([slot for slot in ticket.slots if slot in left][: ticket.count])
    return left


def remove_dead_tickets(directory: SlotDirectory) -> None:
    """Remove the tickets of this user's dead processes, and of everyone's if this user may."""
    for name in directory.names(TICKET_PREFIX):
        found = directory.read(name)
        if found and not found[-1]:
            directory.remove_unlocked(name)


def _place(ticket: LockedTicket) -> tuple[int, float, int, str]:
    content = ticket.content
    return content.priority, content.submitted, content.trial_id, ticket.name


def _read_all(directory: SlotDirectory) -> Iterator[LockedTicket]:
    for name in directory.names(TICKET_PREFIX):
        status, text, locked = directory.read(name) or (None, b"", False)
        if status is None or not locked:
            continue
        if content := parse_ticket(text):
            responding = bool(content.held) or abs(time.time() - status.st_mtime) < RESPONSE_SECONDS
            yield LockedTicket(name, _user_name(status), responding, content)


def _user_name(status: os.stat_result) -> str:
    try:
        return pwd.getpwuid(status.st_uid).pw_name
    except KeyError:  # as in many containers
        return str(status.st_uid)
