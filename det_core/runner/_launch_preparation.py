"""Additions of plugins to launches."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from det_core.errors import PluginClash, PluginError
from det_core.interfaces.launch_preparation import LaunchAdditions, LaunchPlan
from det_core.interfaces.launcher import LaunchRequest
from det_core.interfaces.records import Run, TrialRecord
from det_core.plugins import no_exit, plugin_registry

_HOOK = "det_prepare_launch"
_RESERVED = "DET_"
"""Prefix of det's own environment variables."""


def prepare_launch(request: LaunchRequest, trial: TrialRecord, run: Run, config: Mapping[str, Any]) -> LaunchRequest:
    """Return the request with the additions of all plugins, none of which sees the variables of the request.

    Args:
        request: the request.
        trial: the trial to run.
        run: the run to launch.
        config: the complete config of the experiment, without secrets.

    Raises:
        PluginError: a plugin failed, or its answer cannot be used. The message names the plugin.
        PluginClash: two plugins set a variable to different values.
    """
    plan = LaunchPlan(
        experiment_id=trial.experiment_id,
        trial_id=trial.id,
        run_id=run.run_id,
        config=config,
        argv=tuple(request.argv),
        slots=request.slots,
    )
    added: dict[str, tuple[str, str]] = {}
    for plugin, call in plugin_registry().implementations(_HOOK):
        try:
            with no_exit():
                answer = call(launch=plan)
        except Exception as error:
            raise PluginError(f"plugin {plugin} failed in {_HOOK}: {type(error).__name__}: {error}") from error
        if answer is None:
            continue
        if problem := _mismatch(answer):
            raise PluginError(f"plugin {plugin}: its {_HOOK} answers a {type(answer).__name__}; {problem}")
        for name, value in answer.env.items():
            before, owner = added.setdefault(name, (value, plugin))
            if before != value:
                raise PluginClash(
                    f"plugins disagree on {_HOOK}: {owner} and {plugin} set {name} to different values. Name the "
                    "unwanted one in DET_DISABLE_PLUGINS."
                )
        plan = dataclasses.replace(plan, argv=(*answer.wrapper, *plan.argv))
        request.log(None, "det", f"plugin {plugin} {_describe(answer, request.env)}")
    environment = {name: value for name, (value, _) in added.items()}
    return dataclasses.replace(request, argv=plan.argv, env={**environment, **request.env})


def _mismatch(answer: object) -> str:
    """Return what was expected instead of an answer, or an empty string if it can be used."""
    if not isinstance(answer, LaunchAdditions):
        return "expected a det_core.interfaces.launch_preparation.LaunchAdditions or None"
    if not isinstance(answer.env, Mapping) or not all(_is_text(each) for pair in answer.env.items() for each in pair):
        return "expected env to map names to text without NUL characters"
    wrong = [name for name in answer.env if not name or "=" in name or name.startswith(_RESERVED)]
    if wrong:
        return f"the name {wrong[0]!r} cannot be used; expected one without '=' that does not begin with {_RESERVED}"
    if (
        isinstance(answer.wrapper, str)
        or not isinstance(answer.wrapper, Sequence)
        or not all(map(_is_text, answer.wrapper))
    ):
        return "expected wrapper to be a list of texts, such as ('nsys', 'profile')"
    return ""


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _describe(answer: LaunchAdditions, configured: Mapping[str, str]) -> str:
    """Describe additions for the log of the run. Values are omitted, because they may be long."""
    parts = [f"sets {name}" for name in answer.env if name not in configured]
    parts += [f"does not set {name}, which the config sets" for name in answer.env if name in configured]
    if answer.wrapper:
        parts.append(f"wraps the command with: {shlex.join(answer.wrapper)}")
    return ", ".join(parts) or "adds nothing to the launch"
