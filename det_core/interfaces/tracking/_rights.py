"""Statements of the methods of the tracking store on what a call does and who may make it.

Servers and agents derive from them what they permit, record in the audit log and repeat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from det_core.interfaces.account_records import Role

F = TypeVar("F", bound=Callable[..., object])


class Reach(str, Enum):
    """Records for which the workers of a run may call a method."""

    NOTHING = "nothing"
    """None: workers may not call the method."""
    RUN = "its own run"
    EXPERIMENT = "its own experiment"
    SOURCE = "its own experiment and the checkpoint that it starts from"
    MODELS = "models of its own user"
    ANYTHING = "anything"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Rights:
    """Effect of the calls of one method, and the callers that it permits."""

    writes: bool = False
    """Whether calls change records. All others may be repeated as they are; these need an id to take effect once."""
    role: Role = Role.VIEWER
    """Least powerful role that may call."""
    workers: Reach = Reach.ANYTHING
    """Records for which the workers of a run may call."""
    needs_owner: bool = False
    """Whether only the owner of the record and admins may call."""
    creates: bool = False
    """Whether it only adds a record that belongs to no other one."""
    is_report: bool = False
    """Whether it is one of the many calls with which runs and their runners report. The audit log has those only if
    they are about an experiment of somebody else, or if they have a ``lease`` argument that is empty."""


def reads(method: F) -> F:
    """State that everybody may call a method, which only reads."""
    return _state(Rights())(method)


def reads_for_admins(method: F) -> F:
    """State that admins may call a method, which only reads."""
    return _state(Rights(role=Role.ADMIN, workers=Reach.NOTHING))(method)


def writes(
    workers: Reach = Reach.NOTHING,
    *,
    role: Role = Role.USER,
    needs_owner: bool = False,
    creates: bool = False,
    is_report: bool = False,
) -> Callable[[F], F]:
    """State that a method changes records. The arguments are those of `Rights`."""
    return _state(Rights(True, role, workers, needs_owner, creates, is_report))


def _state(rights: Rights) -> Callable[[F], F]:
    def mark(method: F) -> F:
        method.rights = rights  # type: ignore[attr-defined]
        return method

    return mark
