"""Additions of plugins to a launch request."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from det_core.errors import PluginClash, PluginError
from det_core.interfaces.launch_preparation import LaunchAdditions, LaunchPlan
from det_core.interfaces.launcher import LaunchRequest
from det_core.runner import _launch_preparation
from det_core.runner._launch_preparation import prepare_launch

Prepare = Callable[..., LaunchRequest]


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def prepare(monkeypatch: pytest.MonkeyPatch, log: list[str]) -> Prepare:
    """Return a function that prepares a launch with hooks, given by plugin."""

    def run(**hooks: Callable[[LaunchPlan], Any]) -> LaunchRequest:
        calls = [(name, lambda launch, hook=hook: hook(launch)) for name, hook in hooks.items()]
        registry = SimpleNamespace(implementations=lambda hook: calls)
        monkeypatch.setattr(_launch_preparation, "plugin_registry", lambda: registry)
        request = LaunchRequest(
            key="trial-1",
            argv=["python", "train.py"],
            code=b"",
            info={"trial.json": {"config": {"key": "hush"}}},
            slots=2,
            log=lambda rank, stdtype, text: log.append(text),
            call=lambda method, body: b"",
            env={"API_KEY": "hush"},
        )
        trial: Any = SimpleNamespace(id=1, experiment_id=2)
        started: Any = SimpleNamespace(run_id=3)
        return prepare_launch(request, trial, started, {"key": "********"})

    return run


def test_each_plugin_wraps_the_command_of_those_before(prepare: Prepare, log: list[str]) -> None:
    plans: list[LaunchPlan] = []

    def inner(plan: LaunchPlan) -> LaunchAdditions:
        plans.append(plan)
        return LaunchAdditions(env={"A": "1"}, wrapper=["nsys", "profile"])

    def outer(plan: LaunchPlan) -> LaunchAdditions:
        plans.append(plan)
        return LaunchAdditions(env={"A": "1", "B": "2"}, wrapper=("apptainer", "exec", "an image"))

    request = prepare(inner=inner, silent=lambda plan: None, outer=outer)
    assert request.argv == ("apptainer", "exec", "an image", "nsys", "profile", "python", "train.py")
    assert request.env == {"A": "1", "B": "2", "API_KEY": "hush"}
    assert [plan.argv[0] for plan in plans] == ["python", "nsys"]
    assert (plans[0].experiment_id, plans[0].trial_id, plans[0].run_id, plans[0].slots) == (2, 1, 3, 2)
    assert "hush" not in repr([vars(plan) for plan in plans])
    assert log == [
        "plugin inner sets A, wraps the command with: nsys profile",
        "plugin outer sets A, sets B, wraps the command with: apptainer exec 'an image'",
    ]


def test_the_config_has_the_last_word(prepare: Prepare) -> None:
    assert prepare(one=lambda plan: LaunchAdditions(env={"API_KEY": "mine"})).env == {"API_KEY": "hush"}


def test_plugins_that_disagree_are_named(prepare: Prepare) -> None:
    """Values are omitted, because they may be secrets."""
    with pytest.raises(PluginClash, match="one and two set A to different values") as caught:
        prepare(one=lambda plan: LaunchAdditions(env={"A": "s1"}), two=lambda plan: LaunchAdditions(env={"A": "s2"}))
    assert "s1" not in str(caught.value) and "s2" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (["nsys"], "expected a det_core.interfaces.launch_preparation.LaunchAdditions or None"),
        (LaunchAdditions(env={"A": 1}), "expected env to map names to text"),  # type: ignore[dict-item]
        (LaunchAdditions(env={"A": "secret\0b"}), "expected env to map names to text"),
        (LaunchAdditions(env={"DET_INFO_DIR": "/"}), "'DET_INFO_DIR' cannot be used"),
        (LaunchAdditions(env={"A=B": ""}), "'A=B' cannot be used"),
        (LaunchAdditions(wrapper="nsys profile"), "expected wrapper to be a list of texts"),
        (LaunchAdditions(wrapper=[1]), "expected wrapper to be a list of texts"),  # type: ignore[list-item]
    ],
)
def test_a_wrong_answer_names_the_plugin(prepare: Prepare, answer: Any, expected: str) -> None:
    with pytest.raises(PluginError, match=f"plugin wrong: its det_prepare_launch answers a .*{expected}") as caught:
        prepare(wrong=lambda plan: answer)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("error", [ValueError("no image"), SystemExit(2)])
def test_an_error_names_the_plugin(prepare: Prepare, error: BaseException) -> None:
    def fail(plan: LaunchPlan) -> None:
        raise error

    with pytest.raises(PluginError, match="plugin wrong failed in det_prepare_launch"):
        prepare(wrong=fail)
