"""Registry of everything that plugins offer, from one scan of one entry-point group."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import importlib_metadata
import pluggy

from det_core import hookspecs
from det_core.errors import DetError, PluginClash, PluginError, PluginNotFound
from det_core.plugins._target_checks import (
    answer_mismatch,
    config_model_mismatch,
    instance_mismatch,
    makes_object,
    signature_mismatch,
    target_mismatch,
)
from det_core.specs import (
    API,
    BackendSpec,
    CommandSpec,
    FrameworkSpec,
    LauncherSpec,
    ObserverSpec,
    SearchMethodSpec,
    Spec,
    StorageSpec,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

ENTRY_POINT_GROUP = "det"
"""Name of the entry-point group."""
DISABLE_VARIABLE = "DET_DISABLE_PLUGINS"
"""Environment variable with the names of distributions that are not loaded, separated by commas."""

KINDS: dict[str, tuple[str, type[Spec]]] = {
    "framework": ("det_frameworks", FrameworkSpec),
    "backend": ("det_backends", BackendSpec),
    "storage": ("det_storage", StorageSpec),
    "launcher": ("det_launchers", LauncherSpec),
    "search_method": ("det_search_methods", SearchMethodSpec),
    "observer": ("det_observers", ObserverSpec),
    "command": ("det_commands", CommandSpec),
}
"""Kinds of plugins mapped to the registration hook and the type of spec that it yields."""

_METADATA = re.compile(r"Metadata-Version: .+\nName: (.+)\nVersion: (.+)\n")

_log = logging.getLogger("det.plugins")


@dataclass(frozen=True, kw_only=True)
class PluginReport:
    """Result of loading one distribution that has an entry point in the group."""

    name: str
    """Normalized name of the distribution."""
    version: str
    """Version of the distribution, or an empty string if its metadata is damaged."""
    module: str
    """Module that the entry point names."""
    status: str
    """``ok``, ``broken`` (raised on import or registration), ``incompatible`` or ``disabled``."""
    problem: str = ""
    """Reason for any status other than ``ok``."""
    provides: tuple[tuple[str, Spec], ...] = ()
    """Kind and spec of everything that it offers."""
    hooks: tuple[str, ...] = ()
    """Names of the hooks that it implements, other than those that offer something."""

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.module})"


class Registry:
    """The plugins of this process. `plugin_registry` makes one per process, and tests make their own.

    Args:
        entry_points: entry points to load.
        disabled: names of distributions to skip.

    Attributes:
        reports: one report per distribution, sorted by name.
    """

    def __init__(self, entry_points: Iterable[importlib_metadata.EntryPoint], disabled: Iterable[str] = ()) -> None:
        self._manager = pluggy.PluginManager(ENTRY_POINT_GROUP)
        self._manager.add_hookspecs(hookspecs)
        off = {normalize_distribution_name(name) for name in disabled}
        reports = [self._register(entry_point, off) for entry_point in entry_points]
        self.reports = sorted(reports, key=lambda report: report.name)
        for report in self.reports:
            if report.problem and report.status != "disabled":
                _log.warning("plugin %s is %s and was skipped: %s", report, report.status, report.problem)

    def names(self, kind: str) -> list[str]:
        """Return the names of one kind that a config can select, sorted.

        Raises:
            PluginNotFound: there is no such kind.
        """
        return sorted({spec.name for spec, _ in self._offers(kind)})

    def specs(self, kind: str) -> list[Spec]:
        """Return all specs of one kind whose name is unique, sorted by name."""
        return [self.find(kind, name) for name in self.names(kind) if len(self._providers(kind, name)) == 1]

    def find(self, kind: str, name: str) -> Spec:
        """Return the spec registered under this name.

        Args:
            kind: a key of `KINDS`, possibly with hyphens as in ``search-method``.
            name: name from a config.

        Raises:
            PluginNotFound: no plugin offers it. The message lists the installed names, and the pip command if known.
            PluginClash: several distributions offer it. The message lists them.
        """
        kind = kind.replace("-", "_")
        providers = self._providers(kind, name)
        if len(providers) == 1:
            return providers[0][0]
        if providers:
            owners = ", ".join(str(report) for _, report in providers)
            raise PluginClash(
                f"{_words(kind)} {name!r} is offered by several distributions: {owners}. "
                f"Uninstall all but one, or name the unwanted ones in {DISABLE_VARIABLE}."
            )
        raise PluginNotFound(self._why_missing(kind, name))

    def clashes(self) -> list[str]:
        """Return one message per name that several distributions offer."""
        messages = []
        for kind in KINDS:
            for name in self.names(kind):
                try:
                    self.find(kind, name)
                except PluginClash as error:
                    messages.append(str(error))
        return messages

    def load(self, spec: Spec) -> Any:
        """Import the implementation that the spec names.

        Raises:
            PluginError: it cannot be imported or does not suit its kind. The message names the plugin, the target and
                what was expected.
        """
        target, kind = self._import(spec, spec.target), _kind(spec)
        further = ("claimed",) if getattr(spec, "claims", None) else ()
        self._refuse(spec, spec.target, target_mismatch(kind, target) or signature_mismatch(kind, target, further))
        return target

    def call_target(self, spec: Spec, *arguments: Any) -> Any:
        """Call the implementation with the arguments of its kind, such as a store's config, and return the result.

        Args:
            spec: spec of the plugin.
            *arguments: arguments of the implementation.

        Raises:
            PluginError: it cannot be imported, does not suit its kind, or raised an error of its own while it created
                an object. Errors of det and of the operating system are not converted.
        """
        target = self.load(spec)
        if not makes_object(_kind(spec)):
            return target(*arguments)
        try:
            made = target(*arguments)
        except (DetError, OSError):
            raise
        except (Exception, SystemExit) as error:
            raise PluginError(
                f"plugin {self.owner(spec)} failed to make {spec.name!r} with {spec.target!r}: "
                f"{type(error).__name__}: {error}"
            ) from error
        self._refuse(spec, spec.target, instance_mismatch(_kind(spec), made))
        return made

    def loader(self, spec: FrameworkSpec) -> Any:
        """Import the function that loads checkpoints of a framework. Return None if it has none.

        Raises:
            PluginError: it cannot be imported or called.
        """
        return self._import_callable(spec, spec.load) if spec.load else None

    def exporter(self, spec: FrameworkSpec, format: str) -> Any:
        """Import the function that exports checkpoints of a framework.

        Args:
            spec: spec of the framework.
            format: a key of its exports.

        Raises:
            PluginError: it cannot be imported or called.
        """
        return self._import_callable(spec, spec.exports[format])

    def adapters(self, backend: BackendSpec) -> dict[str, tuple[BackendSpec | FrameworkSpec, str]]:
        """Return the arguments of `adapter` for each framework for which the backend has an adapter, by its name."""
        frameworks = [cast("FrameworkSpec", spec) for spec in self.specs("framework")]
        brought = {one.name: (one, backend.name) for one in frameworks if backend.name in one.adapters}
        return {**brought, **{name: (backend, name) for name in backend.adapters}}

    def adapter(self, spec: BackendSpec | FrameworkSpec, name: str) -> Any:
        """Import an adapter between a backend and a framework.

        Args:
            spec: the backend or the framework that brings the adapter.
            name: a key of its adapters, which is the name of the other one.

        Raises:
            PluginError: it cannot be imported or called.
        """
        return self._import_callable(spec, spec.adapters[name])

    def config_model(self, spec: Spec) -> type[BaseModel] | None:
        """Import the pydantic model of the plugin's config block. Return None if it has no options.

        Raises:
            PluginError: it cannot be imported, is not a pydantic model, or does not suit the kind of the plugin.
        """
        model = self._import(spec, spec.config_model) if spec.config_model else None
        self._refuse(spec, spec.config_model, config_model_mismatch(_kind(spec), model))
        return cast("type[BaseModel] | None", model)

    def claimed_model(self, spec: LauncherSpec) -> type[BaseModel] | None:
        """Import the pydantic model of the keys that a launcher claims. Return None if it claims none.

        Raises:
            PluginError: it cannot be imported, or is not a pydantic model.
        """
        model = self._import(spec, spec.claims) if spec.claims else None
        self._refuse(spec, spec.claims, config_model_mismatch("launcher", model))
        return cast("type[BaseModel] | None", model)

    def choose(self, hook: str, **question: Any) -> str | None:
        """Ask all implementations of a choice hook and return their answer, or None if there is none.

        Args:
            hook: name of the hook.
            **question: arguments of the hook.

        Raises:
            PluginClash: answers differ. The message lists which plugin gave which answer.
            PluginError: an answer is not a name. The message names the plugin.
        """
        answers = {plugin: answer for plugin, answer in self.call(hook, **question) if answer is not None}
        for plugin, answer in answers.items():
            if problem := answer_mismatch(answer):
                raise PluginError(f"plugin {plugin}: its {hook} {problem}")
        if len(set(answers.values())) > 1:
            given = ", ".join(f"{plugin} answers {answer!r}" for plugin, answer in answers.items())
            raise PluginClash(f"plugins disagree on {hook}: {given}. Name the unwanted ones in {DISABLE_VARIABLE}.")
        return next(iter(answers.values()), None)

    def implements(self, hook: str) -> bool:
        """Return whether a plugin implements a hook."""
        return bool(getattr(self._manager.hook, hook).get_hookimpls())

    def implementations(self, hook: str) -> list[tuple[str, Callable[..., Any]]]:
        """Return (plugin, function) for every implementation of a hook, in the order of the distributions' names.

        Args:
            hook: name of the hook, whose arguments the functions take as keywords.
        """
        found = sorted(getattr(self._manager.hook, hook).get_hookimpls(), key=lambda each: each.plugin_name)
        return [(each.plugin_name, partial(_call_named, each.function, each.argnames)) for each in found]

    def call(self, hook: str, **arguments: Any) -> Iterator[tuple[str, Any]]:
        """Call every implementation of a hook and yield (plugin, result) of each.

        An error in one is logged, and the others are called all the same.

        Args:
            hook: name of the hook.
            **arguments: arguments of the hook. Each implementation receives those that it names.
        """
        for plugin, call in self.implementations(hook):
            try:
                result = call(**arguments)
            except Exception:  # noqa: BLE001  (plugins may raise anything, and must not affect each other)
                _log.exception("plugin %s failed in %s", plugin, hook)
            else:
                yield plugin, result

    def owner(self, spec: Spec) -> str:
        """Return the name, the version and the module of the distribution that offers a spec."""
        return next((str(one) for one in self.reports if any(offer is spec for _, offer in one.provides)), "?")

    def _register(self, entry_point: importlib_metadata.EntryPoint, disabled: set[str]) -> PluginReport:
        distribution, name, version = entry_point.dist, entry_point.name, ""
        try:
            if distribution:
                name, version = _name_and_version(distribution)
        except Exception as error:  # noqa: BLE001  (damaged files may raise anything)
            problem = f"its metadata is damaged ({type(error).__name__}: {error}); reinstall it"
            return PluginReport(name=name, version="", module=entry_point.value, status="broken", problem=problem)
        report = partial(PluginReport, name=name, version=version, module=entry_point.value)
        if name in disabled:
            return report(status="disabled", problem=f"named in {DISABLE_VARIABLE}")
        if self._manager.has_plugin(name):
            problem = (
                f"it has a second entry point {entry_point.name!r} in the group {ENTRY_POINT_GROUP!r}; expected one"
            )
            return report(status="broken", problem=problem)
        try:
            with no_exit():
                module = entry_point.load()
        except Exception as error:  # noqa: BLE001  (plugins may raise anything)
            return report(status="broken", problem=f"{type(error).__name__}: {error}")
        try:
            self._manager.register(module, name)
            with no_exit():
                provides = tuple(self._collect(name, module))
        except pluggy.PluginValidationError as error:
            self._manager.unregister(name=name)
            reason = " ".join(str(error).split())
            return report(status="incompatible", problem=f"{reason}; det_core.hookspecs lists the hooks' arguments")
        except _IncompatibleError as error:
            self._manager.unregister(name=name)
            return report(status="incompatible", problem=str(error))
        except Exception as error:  # noqa: BLE001
            self._manager.unregister(name=name)
            return report(status="broken", problem=f"{type(error).__name__}: {error}")
        registering = {hook for hook, _ in KINDS.values()}
        hooks = sorted({caller.name for caller in self._manager.get_hookcallers(module) or ()} - registering)
        return report(status="ok", provides=provides, hooks=tuple(hooks))

    def _collect(self, plugin_name: str, module: ModuleType) -> Iterator[tuple[str, Spec]]:
        hooks = [name for name in vars(hookspecs) if name.startswith("det_")]
        callers = {caller.name: caller for caller in self._manager.get_hookcallers(module) or ()}
        unknown = sorted(name for name, caller in callers.items() if not caller.has_spec())
        if unknown:
            from det_core.similar_names import suggest_name

            hint = suggest_name(unknown[0], hooks) or "; det_core.hookspecs lists the hooks"
            raise _IncompatibleError(f"it implements {', '.join(unknown)}, which this det-core does not have{hint}")
        unmarked = [name for name in hooks if name not in callers and callable(getattr(module, name, None))]
        if unmarked:
            raise _IncompatibleError(
                f"its {', '.join(unmarked)} lacks @det_core.hookimpl, so that det does not call it; "
                "add the decorator or rename the function"
            )
        for kind, (hook, spec_type) in KINDS.items():
            if hook not in callers:
                continue
            for implementation in callers[hook].get_hookimpls():
                if implementation.plugin_name == plugin_name:
                    specs = implementation.function()
                    if not isinstance(specs, Iterable):
                        raise _IncompatibleError(
                            f"its {hook} returns {specs!r:.100}; yield each {spec_type.__name__}, or return a list"
                        )
                    for spec in specs:
                        yield kind, _checked(spec, spec_type, hook)

    def _offers(self, kind: str) -> Iterator[tuple[Spec, PluginReport]]:
        if kind not in KINDS:
            raise PluginNotFound(f"there is no kind of plugins {kind!r}; expected one of {', '.join(KINDS)}")
        for report in self.reports:
            for its_kind, spec in report.provides:
                if its_kind == kind:
                    yield spec, report

    def _providers(self, kind: str, name: str) -> list[tuple[Spec, PluginReport]]:
        return [(spec, report) for spec, report in self._offers(kind) if spec.name == name]

    def _why_missing(self, kind: str, name: str) -> str:
        from det_core.package_commands import package_command  # a process without errors needs none of these
        from det_core.plugins._known_distributions import DISTRIBUTIONS, SUBSTITUTES
        from det_core.similar_names import suggest_name

        known = DISTRIBUTIONS.get(kind, {})
        installed = ", ".join(self.names(kind)) or "none"
        reason = f"no installed plugin offers the {_words(kind)} {name!r} (installed: {installed})"
        distribution = known.get(name)
        left_out = [report for report in self.reports if report.status != "ok"]
        culprit = next((report for report in left_out if report.name == distribution), None)
        if culprit:
            return f"{reason}; {culprit} is installed but {culprit.status}: {culprit.problem}"
        if substitute := SUBSTITUTES.get(kind, {}).get(name):
            return f"{reason}; {substitute}"
        if distribution:
            return f"{reason}; to install it: {package_command('install', distribution)}"
        reason += suggest_name(name, {*self.names(kind), *known}) or "; see: det plugins list"
        return reason + "".join(f" Note that {report} is {report.status}: {report.problem}." for report in left_out)

    def _import(self, spec: Spec, target: str) -> Any:
        try:
            return import_target(target)
        except Exception as error:
            from det_core.package_commands import adapt_install_command

            hint = f" To install what it needs: {adapt_install_command(spec.install)}." if spec.install else ""
            raise PluginError(
                f"plugin {self.owner(spec)} failed to load {spec.name!r} from {target!r}: "
                f"{type(error).__name__}: {error}.{hint}"
            ) from error

    def _import_callable(self, spec: Spec, target: str) -> Any:
        found = self._import(spec, target)
        self._refuse(spec, target, "" if callable(found) else f"it is {found!r:.100}; expected a class or a function")
        return found

    def _refuse(self, spec: Spec, target: str | None, problem: str) -> None:
        if problem:
            named = repr(target) if target else "no config model"
            raise PluginError(f"plugin {self.owner(spec)} names {named} for {spec.name!r}, but {problem}")


class _IncompatibleError(Exception):
    """The plugin module does not follow this version of the contract."""


@cache
def plugin_registry() -> Registry:
    """Return the registry of the installed plugins, which are scanned on the first call."""
    disabled = [name for name in os.environ.get(DISABLE_VARIABLE, "").split(",") if name.strip()]
    return Registry(_entry_points(), disabled)


def import_target(target: str) -> Any:
    """Import ``"module:attribute"`` and return the attribute."""
    module, _, attribute = target.partition(":")
    with no_exit():
        return getattr(import_module(module), attribute)


@contextmanager
def no_exit() -> Iterator[None]:
    """Turn a plugin's call of `sys.exit` into a PluginError."""
    try:
        yield
    except SystemExit as stop:
        raise PluginError(f"it ended the program: sys.exit({'' if stop.code is None else repr(stop.code)})") from stop


def intact_distributions() -> Iterator[Any]:
    """Yield the installed distributions.

    Damaged ones, such as an interrupted pip leaves, are skipped with a warning.
    """
    for distribution in importlib_metadata.distributions():
        try:
            _ = distribution.name, distribution.version, distribution.entry_points, distribution.read_text("RECORD")
        except Exception as error:  # noqa: BLE001  (damaged files may raise anything)
            place = getattr(distribution, "_path", distribution.locate_file(""))
            reason = f"{type(error).__name__}: {error}"
            _log.warning("%s is damaged (%s); reinstall that distribution, or remove the directory", place, reason)
        else:
            yield distribution


def _name_and_version(distribution: Any) -> tuple[str, str]:
    # Most metadata begins with both, so that the parser of mails, which imports 25 modules, need not read it.
    begin = _METADATA.match(distribution.read_text("METADATA") or "")
    name, version = begin.groups() if begin else (distribution.name, distribution.version)
    return normalize_distribution_name(name), version


def _entry_points() -> Iterable[importlib_metadata.EntryPoint]:
    try:
        return list(importlib_metadata.entry_points(group=ENTRY_POINT_GROUP))
    except Exception:  # noqa: BLE001  (a single damaged distribution makes the whole scan fail)
        found = (
            point for each in intact_distributions() for point in each.entry_points.select(group=ENTRY_POINT_GROUP)
        )
        return dict.fromkeys(found)


def _checked(spec: object, expected: type[Spec], hook: str) -> Spec:
    if not isinstance(spec, expected):
        raise _IncompatibleError(f"its {hook} yields {spec!r}; expected {expected.__name__}")
    if not (isinstance(spec.name, str) and isinstance(spec.target, str)):
        raise _IncompatibleError(f"its {hook} yields {spec!r}; expected strings for name and target")
    if spec.api != API:
        raise _IncompatibleError(
            f"its {spec.name!r} was written for api {spec.api}, and this det-core has api {API}; "
            "install matching releases"
        )
    return spec


def _call_named(function: Callable[..., Any], named: Sequence[str], **arguments: Any) -> Any:
    return function(**{name: arguments[name] for name in named})


def normalize_distribution_name(name: str) -> str:
    """Return a distribution's name in the normalized form that pip compares."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _words(kind: str) -> str:
    return kind.replace("_", " ")


def _kind(spec: Spec) -> str:
    return next(kind for kind, (_, spec_type) in KINDS.items() if isinstance(spec, spec_type))
