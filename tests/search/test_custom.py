"""Search method of a user, in its own process."""

from __future__ import annotations

import inspect
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from det_core.config import parse_config
from det_core.errors import ConfigError, DetError
from det_core.interfaces.search_method import SearchMethod
from det_core.search.method_selection import open_search_method

from ..waiting import is_alive, wait_for
from .playing import SPACE, brief

pytestmark = pytest.mark.integration

METHOD = """
import os, random, sys, time
from det_core.interfaces.search_method import Close, Create, SearchMethod, Train

print("imported")

class Doubling(SearchMethod):
    '''Each trial trains twice as long as the one before, while that is better.'''

    def __init__(self, options, hyperparameters, seed):
        self.options, self.hyperparameters, self.rng = options, hyperparameters, random.Random(seed)
        self.trials = 0

    def start(self):
        return self.next()

    def next(self):
        trial, self.trials = self.trials, self.trials + 1
        hparams = {"lr": self.rng.random(), "depth": self.hyperparameters["depth"]["maxval"]}
        return [Create(trial, hparams), Train(trial, self.options["first"] * 2**trial)]

    def on_validation(self, request_id, length, metric):
        return [Close(request_id), *(self.next() if metric < 0.5 else [])]

    def on_exit(self, request_id, reason):
        return eval(reason)

    def progress(self, lengths):
        return lengths[0] / 10

    def outline(self):
        return [f"from {self.options['first']}", str(os.getpid())]
"""

Open = Callable[..., SearchMethod]


@pytest.fixture
def new_method(tmp_path: Path) -> Iterator[Open]:
    """Open the method above."""
    with ExitStack() as stack:

        def new(method: str = "mine:Doubling") -> SearchMethod:
            (tmp_path / "mine.py").write_text(METHOD)
            searcher = {"name": "custom", "metric": "loss", "method": method, "options": {"first": 3}, "unit": "epochs"}
            config = parse_config(
                {
                    "entrypoint": "model:Trial",
                    "searcher": searcher,
                    "hyperparameters": SPACE,
                    "reproducibility": {"experiment_seed": 5},
                }
            )
            assert parse_config(config.dump()) == config and config.searcher.unit == "epochs"
            return stack.enter_context(open_search_method(config, tmp_path))

        yield new


def test_events_and_actions_pass_also_those_of_a_record(new_method: Open, capfd: Any) -> None:
    method = new_method()
    first = method.start()
    assert brief(first) == "+0 0:3"
    second = method.on_validation(0, 3, 0.4)
    assert brief(second) == "-0 +1 1:6"
    assert method.progress({0: 3}) == 0.3
    assert method.outline()[0] == "from 3"
    replaying, restored = new_method(), new_method()
    assert replaying.replay("start", [], first) == first
    assert replaying.replay("on_validation", [0, 3, 0.4], second) == second
    restored.restore([["start"], ["on_validation", 0, 3, 0.4]])  # a snapshot of release 0.1.0
    following = method.on_validation(1, 6, 0.3)
    assert brief(following) == "-1 +2 2:12"
    assert following == replaying.on_validation(1, 6, 0.3) == restored.on_validation(1, 6, 0.3)
    assert capfd.readouterr().out == ""  # output of the method does not mix with that of a command


# body of on_exit, and words of the error
BROKEN = [
    ("1 / 0", "failed in on_exit:\nTraceback"),
    ("[3]", "on_exit returned 3; expected a list of Create, Train and Close"),
    ("None", "on_exit returned None; expected a list"),
    ("[Create(1, {'x': object()})]", "not JSON serializable"),
    ("sys.exit(3)", "ended its process in on_exit; it must return or raise"),
    ("[]", "ended its process in on_exit; it must return or raise"),
]


def test_the_example_of_the_documentation_works(tmp_path: Path) -> None:
    code = inspect.getdoc(SearchMethod).partition("::\n")[2]  # type: ignore[union-attr]
    imports = (
        "import random\nfrom det_core.config import sample_hyperparameters\n"
        "from det_core.interfaces.search_method import *\n"
    )
    (tmp_path / "mine.py").write_text(imports + textwrap.dedent(code))
    options = {"name": "custom", "method": "mine:UntilGood", "options": {"length": 100, "most": 4}}
    config = parse_config({"searcher": {"metric": "loss", **options}, "hyperparameters": SPACE})
    with open_search_method(config, tmp_path) as method:
        assert brief(method.start()) == "+0 0:100"
        assert brief(method.on_validation(0, 100, 0.2)) == "-0 +1 1:100"
        assert brief(method.on_exit(1, "invalid_hp")) == "+2 2:100"
        assert brief(method.on_validation(2, 100, 0.1)) == "-2"


def test_every_misbehaviour_is_one_error(new_method: Open, capfd: Any) -> None:
    method = new_method()
    for body, words in BROKEN:
        with pytest.raises(DetError, match="the search method mine:Doubling") as caught:
            method.on_exit(0, body)
        assert words in str(caught.value)
    assert "Traceback" not in capfd.readouterr().err  # the traceback is part of the error


def test_a_class_that_is_no_search_method_is_refused(new_method: Open) -> None:
    with pytest.raises(DetError, match="has no attribute 'Nothing'"):
        new_method("mine:Nothing")
    with pytest.raises(DetError, match="expected a subclass of det_core's SearchMethod"):
        new_method("mine:random.Random")


def test_a_method_that_takes_too_long_is_an_error_and_ends_with_its_owner(new_method: Open) -> None:
    method = new_method()
    pid = int(method.outline()[1])
    assert is_alive(pid)
    method._child._socket.settimeout(0.2)  # type: ignore[attr-defined]
    with pytest.raises(DetError, match="did not return from on_exit within"):
        method.on_exit(0, "time.sleep(600)")
    method.close()
    assert not is_alive(pid)


OWNER = """
import sys
from pathlib import Path
from det_core.search.custom import CustomConfig, CustomSearch
method = CustomSearch(CustomConfig(method="mine:Doubling", options={"first": 1}), {}, 0)
method.open(Path.cwd())
print(method.outline()[1], flush=True)
method.on_exit(0, "open('busy', 'w').close() or time.sleep(600)")
"""


def test_a_busy_method_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(METHOD)
    with subprocess.Popen([sys.executable, "-c", OWNER], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout
        pid = int(owner.stdout.readline())
        wait_for((tmp_path / "busy").exists)
        owner.kill()
        wait_for(lambda: not is_alive(pid))


def test_the_method_is_named_as_module_and_class() -> None:
    with pytest.raises(ConfigError, match=r"searcher\.method"):
        parse_config({"searcher": {"name": "custom", "metric": "loss", "method": "mine.py"}})
