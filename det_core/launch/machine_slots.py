"""Slots of this machine, which all runners of all users share.

A slot is a file that is locked as long as the slot is used. All processes of a trial inherit the locked descriptor, so
the slot is free when the last of them has ended, however it ends. Nothing has to be cleaned up after a kill.

Trials that wait form a queue, in which each has a ticket. There is no common lock: every process looks at the tickets
and the slots and decides by the same rule, so a stopped process does not keep the others from going on.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import datetime

from det_core.errors import LaunchError
from det_core.home import home_directory
from det_core.interfaces.launcher import LaunchRequest
from det_core.launch._slot_directory import TICKET_PREFIX, SlotDirectory
from det_core.launch._slot_tickets import (
    HOME_PATTERN,
    LockedTicket,
    Ticket,
    read_tickets,
    remove_dead_tickets,
    select_ahead,
    subtract_claims,
)
from det_core.processes import process_start_time

__all__ = ["SlotReservation", "reserve_launch_slots"]

_SLOT_PREFIX = "slot-"


@dataclass(frozen=True)
class SlotState:
    """Present use of one slot.

    Attributes:
        slot: name of the slot.
        in_use: whether a process has locked it.
        holder: the ticket of the trial that uses it, if it can be read.
    """

    slot: str
    in_use: bool
    holder: LockedTicket | None


class SlotReservation:
    """Place in the queue for slots, and later the slots themselves. To create one, call `reserve_launch_slots`.

    It may be used by one thread at a time.
    """

    def __init__(self, ticket: Ticket, hint: str) -> None:
        self.slots: list[int] | None = None
        """Positions of the reserved slots in the list of slots that the request may use, or None while it waits."""
        self._ticket = ticket
        self._hint = hint
        self._directory: SlotDirectory | None = None
        self._name = ""
        self._file: int | None = None
        self._locks: list[int] = []

    @property
    def descriptors(self) -> list[int]:
        """File descriptors that all processes of the trial must inherit. The slots stay in use until all are closed."""
        assert self._directory and self._file is not None, "the slots are not reserved"
        return [self._directory.descriptor, self._file, *self._locks]

    def poll(self) -> list[int] | None:
        """Take the slots if it is this trial's turn. Never blocks. To keep its turn, call it at least every 10 s.

        Returns:
            The positions of the reserved slots, as in `slots`, or None if the trial still waits.

        Raises:
            LaunchError: the directory of the slots is unsafe or unusable.
        """
        if self.slots is None:
            with suppress(BlockingIOError, FileNotFoundError):  # another process looks at the same file, or removes it
                self._queue_up()
                self._take()
        return self.slots

    def count_available(self) -> int:
        """Return how many slots the trial could take now if it needed any number of them, without taking any.

        Raises:
            LaunchError: the directory of the slots is unsafe or unusable.
        """
        try:
            directory = SlotDirectory(create=False)
        except FileNotFoundError:  # no trial has run since the machine started
            return len(self._ticket.slots)
        with closing(directory):
            return len(self._unclaimed(directory))

    def explain_wait(self) -> str:
        """Return a sentence that says who holds or will get the slots that this trial waits for."""
        needed = "a slot" if self._ticket.count == 1 else f"{self._ticket.count} slots"
        return f"waiting for {needed}: {self._reason()}; see `det slots`"

    def close(self) -> None:
        """Leave the queue, or return the slots when the processes that inherited them have ended."""
        if self._directory is None:
            return
        self._close_locks()
        if self._file is not None:
            os.close(self._file)
            self._file = None
        with suppress(LaunchError, FileNotFoundError):
            if not self._directory.is_locked(self._name):
                self._directory.remove(self._name)
        self._directory.close()
        self._directory = None

    def _queue_up(self) -> None:
        """Renew the ticket, or write it if there is none that others can see."""
        is_seen = self._file is not None and self._directory is not None and self._directory.is_current
        if self._file is not None and is_seen and os.fstat(self._file).st_nlink:
            os.utime(self._file)
            return
        self.close()
        self._directory = SlotDirectory()
        remove_dead_tickets(self._directory)
        self._name, self._file = self._directory.create(TICKET_PREFIX, self._ticket.to_json())

    def _take(self) -> None:
        directory, ticket = self._directory, self._ticket
        assert directory and self._file is not None
        if len(_free(directory, ticket.slots)) < ticket.count:
            return  # the usual case, in which nobody needs to read the tickets
        chosen = self._unclaimed(directory)[: ticket.count]
        if len(chosen) < ticket.count:
            return
        self._ticket = replace(ticket, held=tuple(chosen), since=time.time())
        try:
            for slot in chosen:
                self._locks.append(directory.lock(_SLOT_PREFIX + slot))
            directory.write(self._file, self._ticket.to_json())
        except BaseException:
            self._ticket = ticket
            self._close_locks()
            raise
        self.slots = [ticket.slots.index(slot) for slot in chosen]

    def _unclaimed(self, directory: SlotDirectory) -> list[str]:
        """Return the free slots that no trial ahead claims."""
        ahead = select_ahead(read_tickets(directory), self._name, self._ticket)
        known = {*self._ticket.slots, *(slot for one in ahead for slot in one.content.slots)}
        left = subtract_claims(_free(directory, known), ahead)
        return [slot for slot in self._ticket.slots if slot in left]

    def _close_locks(self) -> None:
        for lock in self._locks:
            os.close(lock)
        self._locks = []

    def _reason(self) -> str:
        directory = self._directory
        if directory is None:
            return "the directory of the slots is being changed"
        tickets = read_tickets(directory)
        holders = {slot: one.name_for(self._ticket) for one in tickets for slot in one.content.held}
        locked = [slot for slot in self._ticket.slots if directory.is_locked(_SLOT_PREFIX + slot)]
        if len(self._ticket.slots) - len(locked) < self._ticket.count:
            more = self._hint.replace("{slots}", str(len(locked) + self._ticket.count))
            wait = f"; wait for it{more}" if more else ""
            return f"slot {locked[0]} is held by {holders.get(locked[0], 'a process without a ticket')}{wait}"
        ahead = select_ahead(tickets, self._name, self._ticket)
        return f"{ahead[0].name_for(self._ticket)} goes first" if ahead else "it is next"


def reserve_launch_slots(request: LaunchRequest, names: Sequence[str], *, hint: str = "") -> SlotReservation:
    """Request slots of this machine for a launch. The request waits in the queue from its first poll.

    Args:
        request: the launch request, whose priority and time of submission determine the place in the queue.
        names: names of the slots that the launch may use, as `local_slot_names` returns them.
        hint: what else users may do for more slots, such as ``, or add --config launcher.slots={slots}``.

    Raises:
        LaunchError: the machine has fewer slots.
    """
    trial = request.info.get("trial.json", {})
    return reserve_slots(
        names,
        request.slots,
        priority=request.priority,
        submitted=request.submitted,
        cluster_id=request.info["cluster.json"].get("cluster_id", ""),
        experiment_id=trial.get("experiment_id", 0),
        trial_id=trial.get("trial_id", 0),
        home=str(home_directory()),
        hint=hint,
    )


def reserve_slots(
    names: Sequence[str],
    count: int,
    *,
    priority: int,
    submitted: datetime,
    cluster_id: str = "",
    experiment_id: int = 0,
    trial_id: int = 0,
    home: str = "",
    hint: str = "",
) -> SlotReservation:
    """Request slots of this machine. The request waits in the queue from its first poll.

    Args:
        names: names of the slots that the caller may use, as `local_slot_names` returns them.
        count: number of slots, >= 1. The request gets all of them at once.
        priority: 1 to 99. Smaller numbers go first.
        submitted: time of submission. Within a priority, the earliest goes first.
        cluster_id: id of the tracking store of the trial that needs the slots.
        experiment_id: id of its experiment.
        trial_id: id of the trial.
        home: ``DET_HOME`` of the caller, or "" if it does not matter.
        hint: as for `reserve_launch_slots`.

    Raises:
        LaunchError: the machine has fewer slots.
    """
    if count > len(names):
        raise LaunchError(
            f"the trial needs {count} slots, but the launcher has {len(names)}; lower resources.slots_per_trial"
            f"{hint.replace('{slots}', str(count))}"
        )
    return SlotReservation(
        Ticket(
            slots=tuple(names),
            count=count,
            priority=priority,
            submitted=submitted.timestamp(),
            since=time.time(),
            cluster_id=cluster_id,
            experiment_id=experiment_id,
            trial_id=trial_id,
            pid=os.getpid(),
            process_start=process_start_time(os.getpid()),
            home=home if re.fullmatch(HOME_PATTERN, home) else "",
        ),
        hint,
    )


def list_slots(names: Sequence[str]) -> tuple[list[SlotState], list[LockedTicket]]:
    """Return the use of the slots of this machine, and the trials that wait for slots, in order.

    Args:
        names: names of slots to include even if nobody uses them.

    Raises:
        LaunchError: the directory of the slots is unsafe or unusable.
    """
    try:
        directory = SlotDirectory(create=False)
    except FileNotFoundError:  # no trial has run since the machine started
        return [SlotState(name, in_use=False, holder=None) for name in names], []
    try:
        tickets = read_tickets(directory)
        seen = (name.removeprefix(_SLOT_PREFIX) for name in directory.names(_SLOT_PREFIX))
        locked = {slot for slot in {*names, *seen} if directory.is_locked(_SLOT_PREFIX + slot)}
    finally:
        directory.close()
    holders = {slot: one for one in tickets for slot in one.content.held}
    every = [*names, *sorted(locked.difference(names))]
    states = [SlotState(slot, slot in locked, holders.get(slot) if slot in locked else None) for slot in every]
    return states, [one for one in tickets if not one.content.held]


def _free(directory: SlotDirectory, slots: Sequence[str] | set[str]) -> set[str]:
    return {slot for slot in slots if not directory.is_locked(_SLOT_PREFIX + slot)}
