"""Tickets of the trials that wait for slots or hold some.

A ticket is a file that its trial has locked, so that the ticket of a dead trial is ignored. It orders the queue and
tells people who holds a slot. Slots themselves are protected by their own locks, whatever a ticket says.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from typing_extensions import Self

from det_core.launch._slot_directory import TICKET_PREFIX, SlotDirectory

RESPONSE_SECONDS = 30.0
"""Seconds without a poll after which a waiting process counts as stopped, so that others may go first."""

_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,100}$")]
_Id = Annotated[int, Field(ge=0, lt=2**63)]
_Time = Annotated[float, Field(ge=0, lt=2**33, allow_inf_nan=False)]
"""Seconds since 1970, until the year 2242."""


class Ticket(BaseModel):
    """Content of a ticket, bounded because another user may have written it.

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
    """

    model_config = ConfigDict(frozen=True)  # unknown keys, of a newer release, are ignored

    slots: Annotated[tuple[_Name, ...], Field(min_length=1, max_length=1024)]
    count: Annotated[int, Field(ge=1)]
    held: Annotated[tuple[_Name, ...], Field(max_length=1024)] = ()
    priority: Annotated[int, Field(ge=1, le=99)]
    submitted: _Time
    since: _Time
    cluster_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{0,64}$")]
    experiment_id: _Id
    trial_id: _Id
    pid: _Id
    process_start: Annotated[str, StringConstraints(pattern=r"^[0-9]{0,20}$")]

    @model_validator(mode="after")
    def _can_be_served(self) -> Self:
        if self.count > len(self.slots):
            raise ValueError("more slots than there are would keep the others waiting forever")
        return self


@dataclass(frozen=True)
class LockedTicket:
    """Ticket of a living process.

    Attributes:
        name: name of its file.
        user: name of the user who wrote it, or the id of one without a name.
        responding: whether its process has polled recently.
        content: its content.
    """

    name: str
    user: str
    responding: bool
    content: Ticket

    def __str__(self) -> str:
        return f"experiment {self.content.experiment_id} of {self.user}, trial {self.content.trial_id}"


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
            directory.remove(name)


def _place(ticket: LockedTicket) -> tuple[int, float, int, str]:
    content = ticket.content
    return content.priority, content.submitted, content.trial_id, ticket.name


def _read_all(directory: SlotDirectory) -> Iterator[LockedTicket]:
    for name in directory.names(TICKET_PREFIX):
        status, text, locked = directory.read(name) or (None, b"", False)
        if status is None or not locked:
            continue
        try:
            content = Ticket.model_validate_json(text)
        except ValidationError:  # half written, or another user's mistake
            continue
        recent = abs(time.time() - status.st_mtime) < RESPONSE_SECONDS
        yield LockedTicket(name, _user_name(status), recent, content)


def _user_name(status: os.stat_result) -> str:
    try:
        return pwd.getpwuid(status.st_uid).pw_name
    except KeyError:  # as in many containers
        return str(status.st_uid)
