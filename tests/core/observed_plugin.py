"""Plugin of the tests, with observers that record their calls and misbehave on request."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, SecretStr

import det_core
from det_core.errors import DetError
from det_core.events import Event, TrialFinished
from det_core.interfaces.observer import Observer, ObserverContext
from det_core.specs import ObserverSpec


class ProbeConfig(BaseModel):
    raises: list[str] = []
    """Names of the calls that raise."""
    hangs: list[str] = []
    """Names of the calls that wait for `released`."""
    end_timeout: float = 0
    is_det_error: bool = False
    """Whether the errors are those that det shows without a traceback."""
    token: SecretStr = SecretStr("")


calls: list[tuple[str, Any, str]] = []
"""Name, argument and thread of each call."""
reached = threading.Event()
"""Set when a call hangs."""
released = threading.Event()
"""Set to release the calls that hang."""


class Probe(Observer):
    def __init__(self, config: ProbeConfig) -> None:
        self.config = config
        self.end_timeout = config.end_timeout
        self.called("made", config.token.get_secret_value())

    def called(self, name: str, argument: Any = None) -> None:
        calls.append((name, argument, threading.current_thread().name))
        if name in self.config.raises:
            raise (DetError if self.config.is_det_error else RuntimeError)(f"no {name} today")
        if name in self.config.hangs:
            reached.set()
            assert released.wait(60)

    def open(self, context: ObserverContext) -> None:
        self.called("open", context)

    def notify(self, event: Event) -> None:
        self.called(event.name, event)

    def flush(self) -> None:
        self.called("flush")

    def close(self) -> None:
        self.called("close")


class Ends(Observer):
    """Observer of a single kind of events."""

    def __init__(self, config: object) -> None:
        pass

    def trial_finished(self, event: TrialFinished) -> None:
        calls.append(("ends", event.trial_id, threading.current_thread().name))


class Exits(Ends):
    def trial_finished(self, event: TrialFinished) -> None:
        raise SystemExit(3)


@det_core.hookimpl
def det_observers() -> Iterator[ObserverSpec]:
    yield ObserverSpec(name="probe", target=f"{__name__}:Probe", config_model=f"{__name__}:ProbeConfig")
    yield ObserverSpec(name="ends", target=f"{__name__}:Ends")
    yield ObserverSpec(name="exits", target=f"{__name__}:Exits")
