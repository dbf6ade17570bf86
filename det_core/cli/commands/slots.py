"""Command ``det slots``, which shows the slots of this host and the trials that wait for them."""

from __future__ import annotations

import argparse
from datetime import datetime, timezone
from typing import Any

from det_core.cli._command_table import JSON, set_up_command
from det_core.cli.render.printing import print_json
from det_core.launch._slot_tickets import LockedTicket
from det_core.launch.gpu_slots import visible_gpus
from det_core.launch.machine_slots import list_slots
from det_core.text import format_table, join_sections

_TRIAL = ("user", "experiment", "trial", "priority", "since")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to the parser."""
    set_up_command(parser, _run, (JSON,))


def _run(args: argparse.Namespace) -> int:
    models = {gpu.slot: gpu.model for gpu in visible_gpus()}
    slots, waiting = list_slots(list(models))
    if args.json:
        print_json(
            {
                "slots": [
                    {
                        "slot": one.slot,
                        "gpu": models.get(one.slot) or None,
                        "in_use": one.in_use,
                        "holder": one.holder and _document(one.holder),
                    }
                    for one in slots
                ],
                "waiting": [_document(ticket) for ticket in waiting],
            }
        )
        return 0
    users = ((one.slot, models.get(one.slot), "in use" if one.in_use else "free", *_trial(one.holder)) for one in slots)
    queue = (
        (turn, one.content.count, "waiting" if one.responding else "not responding", *_trial(one))
        for turn, one in enumerate(waiting, 1)
    )
    print(
        join_sections(
            format_table(("slot", "gpu", "state", *_TRIAL), users) if slots else "No slot is in use.",
            format_table(("turn", "slots", "state", *_TRIAL), queue) if waiting else "No trial waits.",
        )
    )
    return 0


def _trial(ticket: LockedTicket | None) -> tuple[object, ...]:
    if ticket is None:
        return (None,) * len(_TRIAL)
    content = ticket.content
    return ticket.user, content.experiment_id, content.trial_id, content.priority, _time(content.since)


def _document(ticket: LockedTicket) -> dict[str, Any]:
    content = ticket.content
    times = {"submitted": _time(content.submitted), "since": _time(content.since)}
    return {"user": ticket.user, "responding": ticket.responding, **vars(content), **times}


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)
