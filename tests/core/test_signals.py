"""Signals inside the core context."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_core import core
from det_core.core import PreemptMode, _preempt
from det_core.core._preempt import PreemptContext
from det_core.errors import PeerLost
from det_core.interfaces.records import State
from det_core.tracking import open_store

from ..waiting import wait_for


@pytest.fixture
def outside() -> Iterator[list[int]]:
    """SIGTERMs that reach the handler that is installed before the context."""
    reached: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: reached.append(number))
    yield reached
    signal.signal(signal.SIGTERM, before)


def send(*numbers: int) -> None:
    for number in numbers:
        os.kill(os.getpid(), number)


Run = Callable[[str], str]


@pytest.fixture
def run(forked: list[str], tmp_path: Path) -> Run:
    """Return a function that runs a script, which imports det's core, and returns its output."""

    def run(script: str) -> str:
        head = "import multiprocessing, os, signal, sys, threading, time\nfrom det_core import core\n"
        (tmp_path / "script.py").write_text(head + textwrap.dedent(script))
        command = [sys.executable, *forked, str(tmp_path / "script.py")]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run


@pytest.mark.integration
def test_forked_children_can_be_ended(det_home: Path, run: Run) -> None:
    """This includes children that a thread forked, and daemons that the interpreter ends at exit."""
    printed = run(
        """
        children = []
        def fork():
            children.append(multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,), daemon=True))
            children[-1].start()
        with core.init() as context:
            fork()
            thread = threading.Thread(target=fork)
            thread.start()
            thread.join()
            for child in children:
                child.terminate()
                child.join(60)
            print([child.exitcode for child in children])
            os.kill(os.getpid(), signal.SIGTERM)
            print(context.preempt.should_preempt())
            fork()
        """
    )
    assert printed == "[-15, -15]\nTrue\n"


@pytest.mark.integration
def test_a_signal_reaches_a_child_however_early_it_comes(det_home: Path, run: Run) -> None:
    """Without blocking, a child would forget signals that arrive before Python is ready in it."""
    printed = run(
        """
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # so that children start after the signal is sent
        codes = []
        def end_at_once():
            for _ in range(5):
                child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
                child.start()
                child.terminate()
                child.join(60)
                codes.append(child.exitcode)
                child.kill()
        with core.init():
            end_at_once()
            thread = threading.Thread(target=end_at_once)
            thread.start()
            thread.join()
            print(set(codes), signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        """
    )
    assert printed == "{-15} set()\n"


@pytest.mark.integration
def test_forked_children_survive_the_first_ctrl_c(det_home: Path, run: Run) -> None:
    """A terminal sends SIGINT to data workers, too, but the current batch still needs them."""
    printed = run(
        """
        def work(ready, survived):
            handle = signal.getsignal(signal.SIGINT)
            def note(*arguments):
                handle(*arguments)
                survived.set()
            signal.signal(signal.SIGINT, note)
            try:
                ready.set()
                while True:  # a signal that comes right before a sleep is handled after it
                    time.sleep(0.1)
            except KeyboardInterrupt:
                os._exit(7)
        with core.init():
            fork = multiprocessing.get_context("fork")
            ready, survived = fork.Event(), fork.Event()
            child = fork.Process(target=work, args=(ready, survived))
            child.start()
            assert ready.wait(60)
            os.kill(child.pid, signal.SIGINT)
            print(survived.wait(60), child.exitcode)
            os.kill(child.pid, signal.SIGINT)
            child.join(60)
            print(child.exitcode)
        """
    )
    assert printed == "True None\n7\n"


def test_a_signal_during_the_final_flush_loses_no_report(det_home: Path, outside: list[int]) -> None:
    """A signal must not interrupt the flush, because the last reports would be lost."""
    with core.init() as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
        flush = context.train._close

        def disturbed(*arguments: Any) -> None:
            send(signal.SIGTERM, signal.SIGTERM)
            flush(*arguments)

        context.train._close = disturbed  # type: ignore[method-assign]
    assert outside == []
    with open_store() as store:
        (experiment,) = store.experiments()
        assert experiment.state is State.COMPLETED
        assert len(list(store.metrics(store.trials(experiment.id)[0].id))) == 1


def test_the_first_ctrl_c_is_a_request_after_any_other_request(det_home: Path) -> None:
    """Another rank may have forwarded the same Ctrl-C to the chief."""
    with core.init() as context:
        context.preempt._request("signal")
        send(signal.SIGINT)
        assert context.preempt.should_preempt()
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)


@pytest.mark.integration
def test_the_loss_of_the_runner_requests_a_stop_with_any_stdout(run: Run, tmp_path: Path) -> None:
    """Scripts may replace `sys.stdout` by an object without a descriptor."""
    printed = run(
        f"""
        import socket
        from det_core.core.agent_channel import AgentChannel
        requests, heard = [], threading.Event()
        def request(reason):
            requests.append(reason)
            heard.set()
        class Tee:
            def write(self, text): pass
            def flush(self): pass
        with socket.socket(socket.AF_UNIX) as server:
            server.bind({str(tmp_path / "agent")!r})
            server.listen()
            kept = os.dup(1)
            sys.stdout = Tee()
            AgentChannel({str(tmp_path / "agent")!r}, request)
            server.accept()[0].close()
            assert heard.wait(60), "no request arrived"
        os.write(1, b"lost")
        os.write(kept, repr(requests).encode())
        """
    )
    assert printed == "['runner lost']"


def test_a_lost_notice_does_not_stop_the_forwarding(caplog: pytest.LogCaptureFixture) -> None:
    """Later signals must still reach the chief."""
    passed: list[str] = []

    def notify(reason: str) -> None:
        passed.append(reason)
        if len(passed) == 1:
            raise PeerLost("rank 0 is gone", 0)

    ranks: Any = SimpleNamespace(rank=1, size=2, _notify=notify)
    preempt = PreemptContext(ranks, PreemptMode.WorkersAskChief, announce=passed.append, acknowledge=lambda: None)
    for reason in ("first", "second", None):
        preempt._to_chief.put(reason)
    preempt._pass_on()
    assert passed == ["first", "second"]
    assert "could not forward a signal to the chief: rank 0 is gone" in caplog.text


def test_an_ignored_signal_stays_ignored(det_home: Path) -> None:
    """Shells start background jobs with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with core.init() as context:
            send(signal.SIGINT, signal.SIGINT)
            assert not context.preempt.should_preempt()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_that_python_did_not_install_is_no_error(
    det_home: Path, outside: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`signal.getsignal` returns None for such a handler."""
    with monkeypatch.context() as patch:
        patch.setattr(signal, "getsignal", lambda number: None)
        context = core.init()
        context.preempt._signals.install()
    with context:
        send(signal.SIGTERM)
        assert context.preempt.should_preempt()


@pytest.mark.parametrize("part", ["preempt._start", "train._start", "_machine.start"])
def test_a_block_that_cannot_be_entered_ends_as_after_an_error(
    det_home: Path, outside: list[int], monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    before = threading.enumerate()
    context = core.init()
    start = attrgetter(part)(context)

    def fail() -> None:
        if part == "train._start":
            start()
        raise OSError("no more threads")

    monkeypatch.setattr(start.__self__, start.__name__, fail)
    with pytest.raises(OSError, match="no more threads"), context:
        pass
    send(signal.SIGTERM)
    assert outside == [signal.SIGTERM]
    started = [thread for thread in threading.enumerate() if thread not in before and thread.name.startswith("det-")]
    wait_for(lambda: not any(thread.is_alive() for thread in started))
    with open_store() as store:
        assert store.trial(context.trial.trial_id).state is State.ERROR


@pytest.mark.parametrize("asks", [False, True])
def test_a_second_sigterm_ends_a_script_that_never_polls(
    det_home: Path, monkeypatch: pytest.MonkeyPatch, asks: bool
) -> None:
    """A script that polls for requests may be saving a checkpoint, so it is not ended."""
    monkeypatch.setattr(_preempt, "_TERMINATION_DELAY", 0.02)
    with contextlib.ExitStack() as stack:
        ended = None if asks else stack.enter_context(pytest.raises(SystemExit))
        with core.init() as context:
            if asks:
                context.preempt.should_preempt()
            send(signal.SIGTERM, signal.SIGTERM)
            time.sleep(0.03)
            send(signal.SIGTERM)
    assert ended is None or ended.value.code == 143
    with open_store() as store:
        assert store.experiments()[0].state is (State.COMPLETED if asks else State.CANCELED)
