"""Choice of the backend of a trial, and what its workers use of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import importlib_metadata
import pytest
from pydantic import BaseModel

from det_core.config import parse_config
from det_core.errors import ConfigError, InvalidExperimentException, LaunchError, PluginError
from det_core.interfaces.backend import Backend, NodePlacement, WorkerCommand, WorkerRanks
from det_core.launch import backends
from det_core.package_commands import package_command
from det_core.plugins import hookimpl, plugin_registry
from det_core.specs import BackendSpec, FrameworkSpec

Install = Callable[..., None]


class Recorder(Backend):
    """Backend that keeps its options."""

    def __init__(self, options: BaseModel) -> None:
        self.options = options

    def start(self, place: NodePlacement, worker: Sequence[str]) -> WorkerCommand:
        raise NotImplementedError

    def ranks(self) -> WorkerRanks:
        raise NotImplementedError


class Plugin:
    """Plugin in a distribution of its own."""

    def __init__(self, *specs: BackendSpec | FrameworkSpec, answer: str | None = None) -> None:
        self._specs, self._answer = specs, answer

    @hookimpl
    def det_backends(self) -> Iterator[BackendSpec]:
        yield from (spec for spec in self._specs if isinstance(spec, BackendSpec))

    @hookimpl
    def det_frameworks(self) -> Iterator[FrameworkSpec]:
        yield from (spec for spec in self._specs if isinstance(spec, FrameworkSpec))

    @hookimpl
    def det_choose_backend(self, framework: str, environ: dict[str, str]) -> str | None:
        return self._answer and environ.get(self._answer)


def backend(name: str, **adapters: str) -> BackendSpec:
    return BackendSpec(name=name, target=f"{__name__}:Recorder", adapters=adapters)


@pytest.fixture
def install(only_det_core: None, monkeypatch: pytest.MonkeyPatch) -> Install:
    def install(*specs: BackendSpec | FrameworkSpec, answer: str | None = None) -> None:
        ours = importlib_metadata.entry_points(group="det")
        plugin = importlib_metadata.EntryPoint("theirs", "theirs", "det")
        monkeypatch.setattr(importlib_metadata.EntryPoint, "load", _load(Plugin(*specs, answer=answer)))
        monkeypatch.setattr("importlib_metadata.entry_points", lambda group: [*ours, plugin])
        plugin_registry.cache_clear()

    return install


def _load(plugin: Plugin) -> Callable[[importlib_metadata.EntryPoint], Any]:
    load = importlib_metadata.EntryPoint.load
    return lambda entry_point: plugin if entry_point.name == "theirs" else load(entry_point)


def config(slots: int = 2, **changes: Any) -> Any:
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 1}}
    return parse_config({"entrypoint": "m:T", "searcher": searcher, "resources": {"slots_per_trial": slots}, **changes})


def chosen(settings: Any, framework: str | None = None, **environ: str) -> str | None:
    spec = backends.choose_backend(settings, framework, environ)
    return spec and spec.name


def framework(name: str, **adapters: str) -> FrameworkSpec:
    return FrameworkSpec(name=name, target=f"{__name__}:framework", adapters=adapters)


@pytest.mark.parametrize(
    "settings",
    [{"slots": 1}, {"slots": 0}, {"slots": 2, "entrypoint": "python3 train.py"}, {"slots": 1, "distributed": {}}],
)
def test_one_slot_or_a_command_needs_no_backend(install: Install, settings: dict[str, Any]) -> None:
    install(backend("one"))
    assert chosen(config(**settings)) is None


def test_the_config_names_the_backend(install: Install) -> None:
    install(backend("one"), backend("two"))
    assert chosen(config(distributed={"backend": "two"})) == "two"
    assert chosen(config(slots=1, distributed={"backend": "two"})) == "two"


def test_the_only_installed_backend_is_chosen(install: Install) -> None:
    install(backend("one", toy="m:A"))
    assert chosen(config(distributed={"timeout": 5})) == "one"
    assert chosen(config(), "toy") == "one"
    with pytest.raises(InvalidExperimentException, match="no distributed backend that adapts 'keras' is installed"):
        chosen(config(), "keras")


def test_the_only_backend_that_adapts_the_framework_is_chosen(install: Install) -> None:
    install(backend("one", toy="m:A"), backend("two", keras="m:A"))
    assert chosen(config(), "keras") == "two"


def test_a_framework_brings_an_adapter_for_a_backend(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(
        backend("one", known="os.path:join"),
        backend("two"),
        framework("new", one="os.path:split"),
        framework("known", one="os.path:split"),
        framework("broken", one="no.such:module"),
    )
    assert chosen(config(), "new") == "one"
    backends.check_slots(framework("new"), 2, None)
    with pytest.raises(InvalidExperimentException, match=r"unlike two; set distributed: \{backend: one\} or"):
        backends.check_slots(framework("new"), 2, "two")
    monkeypatch.setenv(backends.BACKEND_VARIABLE, "one")
    assert backends.load_adapter("new").__name__ == "split"
    assert backends.load_adapter("known").__name__ == "join"
    with pytest.raises(PluginError, match="failed to load 'broken' from 'no.such:module'"):
        backends.load_adapter("broken")


def test_several_backends_require_a_choice(install: Install) -> None:
    install(backend("one"), backend("two"), answer="THEIR_BACKEND")
    with pytest.raises(InvalidExperimentException, match=r"installed: one, two; .* distributed: \{backend: one\}"):
        chosen(config())
    assert chosen(config(), THEIR_BACKEND="two") == "two"


@pytest.mark.usefixtures("only_det_core")
def test_a_missing_backend_is_reported_with_the_commands_to_install_one() -> None:
    first, second = (package_command("install", name) for name in ("det-torch-distributed", "det-horovod"))
    with pytest.raises(InvalidExperimentException, match=re.escape(f"{first} or {second}")):
        chosen(config())
    with pytest.raises(ConfigError, match=re.escape(package_command("install", "det-deepspeed"))):
        config(distributed={"backend": "deepspeed"})


def test_an_adapter_is_loaded_or_the_error_lists_the_others(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(backend("one", toy="os.path:join", broken="no.such:module"))
    with pytest.raises(LaunchError, match=r"not started by a distributed backend.*python -m det_core\.launch"):
        backends.load_adapter("toy")
    monkeypatch.setenv(backends.BACKEND_VARIABLE, "one")
    assert backends.load_adapter("toy").__name__ == "join"
    with pytest.raises(InvalidExperimentException, match=r"framework 'keras' .* unlike one; set .*slots_per_trial: 1"):
        backends.load_adapter("keras")
    with pytest.raises(PluginError, match="failed to load 'one' from 'no.such:module'"):
        backends.load_adapter("broken")


def test_the_options_of_a_backend_come_from_the_environment(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    assert backends.current_backend() is None
    install(replace(backend("one"), config_model="det_core.launch.local:LocalConfig"))
    monkeypatch.setenv(backends.BACKEND_VARIABLE, "one")
    monkeypatch.setenv(backends.OPTIONS_VARIABLE, json.dumps({"slots": 7, "timeout": 3}))
    found = backends.current_backend()
    assert found
    name, opened = found
    assert isinstance(opened, Recorder)
    assert (name, dict(opened.options)) == ("one", {"slots": 7, "prepare": ()})
    with pytest.raises(ConfigError, match="distributed.*slots"):
        backends.parse_options("one", {"slots": -1})
