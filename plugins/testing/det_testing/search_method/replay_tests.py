"""Tests that a search continues alike after its runner has died."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from det_core.config import parse_config
from det_core.interfaces.search_method import SearchMethod, action_to_json
from det_core.search.method_selection import open_search_method
from det_core.trial.random_generators import seed_generators
from det_testing.search_method._search_method_suite import NewMethod, Play, SearchMethodSuite
from det_testing.search_method.search_player import SCENARIOS, play_search

_RECORDED_EVENTS = 5
"""Number of events before a search is resumed with another release of its method."""


class SearchReplayTests(SearchMethodSuite):
    """Tests that actions follow from the config, the seed and the events alone."""

    def test_the_same_events_give_the_same_actions(self, play: Play, new_method: NewMethod) -> None:
        """A search is resumed by replaying its events. A clock or a global random generator would change it."""
        played = play().transcript()
        again = new_method()
        for number, ((event, *arguments), actions) in enumerate(played):
            seed_generators(number)  # as other code in the process may
            replayed = [action_to_json(action) for action in getattr(again, event)(*arguments)]
            assert replayed == actions, f"after {event}{tuple(arguments)}"

    def test_another_process_gives_the_same_actions(self, context_dir: Path) -> None:
        """The hashes of strings, and therefore the order of sets, differ between processes, as do day and time zone."""
        searches = [
            (self.experiment_config(options), str(context_dir), SCENARIOS["mixed"], self.most_events)
            for options in self.options
        ]
        first, second = (play_in_another_process(searches, number) for number in (1, 2))
        assert first == second

    def test_a_snapshot_after_any_event_changes_nothing(self, play: Play, new_method: NewMethod) -> None:
        """The runner continues from the latest snapshot. The method may also return None and have no snapshots."""
        played = play().transcript()
        method, restored = new_method(), False
        for (event, *arguments), actions in played:
            continued = [action_to_json(action) for action in getattr(method, event)(*arguments)]
            assert continued == actions, f"after {event}{tuple(arguments)}"
            state = method.state()
            if state is None:
                continue
            text = json.dumps(state, allow_nan=False)
            assert json.loads(json.dumps(method.state())) == json.loads(text), "state() changed the state"
            method, restored = new_method(), True
            method.restore(json.loads(text))
            assert json.loads(json.dumps(method.state())) == json.loads(text), "restore() lost a part of the state"
        if not restored:
            pytest.skip("the method has no snapshots, so its searches are replayed")

    def test_recorded_actions_win(self, config: dict[str, Any], new_method: NewMethod, context_dir: Path) -> None:
        """A method that overrides `SearchMethod.replay` takes over whatever another release has answered."""
        method = new_method()
        if type(method).replay is SearchMethod.replay:
            pytest.skip("the method does not override `replay`, so its answers must be those that were recorded")
        another = parse_config({**config, "reproducibility": {"experiment_seed": 8}})
        with open_search_method(another, context_dir) as recorded:
            player = play_search(recorded, SCENARIOS["mixed"], most_events=_RECORDED_EVENTS)
        for (event, *arguments), actions in zip(player.events, player.actions, strict=True):
            assert list(method.replay(event, arguments, actions)) == actions, f"after {event}{tuple(arguments)}"
        player.method = method
        player.play(SCENARIOS["mixed"], most_events=self.most_events)
        assert not player.problems
        assert player.created.keys() == player.closed


def play_in_another_process(searches: Any, number: int) -> Any:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONHASHSEED": str(number),
        "TZ": f"UTC{-12 * number}",
    }
    command = [sys.executable, "-m", "det_testing.search_method.search_player", str(number)]
    ran = subprocess.run(
        command, input=json.dumps(searches), env=environment, capture_output=True, encoding="utf-8", timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)
