"""Checks of installed plugins that are too slow for every start of det, for ``det plugins check``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from pydantic import ValidationError

from det_core.config import ExperimentConfig, NoOptions
from det_core.config._claimed_keys import find_claimed_model
from det_core.errors import PluginError
from det_core.launch.prepared_process import find_preparation_problem
from det_core.plugins import (
    PluginReport,
    Registry,
    answer_mismatch,
    find_overwritten_files,
    measure_import,
    misspelled_methods,
)
from det_core.specs import BackendSpec, FrameworkSpec, LauncherSpec, ObserverSpec, Spec, StorageSpec

MAX_MODULES = 50
"""Maximum number of modules that a plugin module may load, beyond those of det-core."""
MAX_MILLISECONDS = 100
"""Maximum CPU time of the import of a plugin module, beyond that of det-core."""

_REMEDIES = {
    "broken": "; reinstall or repair {name}, or name it in DET_DISABLE_PLUGINS",
    "incompatible": "",
    "disabled": "; remove it from there to check it",
}
_LIGHTER = "import what is slow in the module of the target, which is imported on use only"
_QUESTIONS: dict[str, dict[str, Any]] = {
    "det_choose_framework": {"mro": ["builtins.object"]},
    "det_choose_backend": {"framework": "", "environ": {}},
}
"""Choice hooks mapped to a question about something that belongs to no plugin."""


def find_plugin_problems(registry: Registry, reports: Sequence[PluginReport]) -> list[str]:
    """Import everything that distributions offer, and return a line for each problem.

    Args:
        registry: the registry that made the reports.
        reports: the distributions to check.
    """
    problems = [problem for report in reports for problem in _report_problems(registry, report)]
    problems += _answer_problems(registry, reports)
    problems += find_overwritten_files([report.name for report in reports])
    return list(dict.fromkeys(problems))  # a clash is found in each of its distributions


def _report_problems(registry: Registry, report: PluginReport) -> Iterator[str]:
    if report.status != "ok":
        remedy = _REMEDIES[report.status].format(name=report.name)
        yield f"plugin {report} is {report.status}: {report.problem}{remedy}"
        return
    for problem in _import_problems(report.module.partition(":")[0]):
        yield f"plugin {report}: {problem}; {_LIGHTER}"
    for kind, spec in report.provides:
        for use in _uses(registry, kind, spec):
            try:
                use()
            except PluginError as error:
                yield str(error)
            except Exception as error:  # noqa: BLE001  (code of plugins may raise anything)
                yield f"plugin {report} failed to make {spec.name!r} without options: {type(error).__name__}: {error}"


def _import_problems(module: str) -> Iterator[str]:
    try:
        cost = measure_import(module)
        own = [name for name in cost.modules if name.partition(".")[0] == "det_core"]
        for _ in range(2):  # the first import may have compiled the modules, and other work delays any
            if cost.milliseconds > MAX_MILLISECONDS:
                cost = min(cost, measure_import(module, first=own), key=lambda each: each.milliseconds)
    except PluginError as error:
        yield str(error)
        return
    added = [name for name in cost.modules if name.partition(".")[0] != "det_core"]
    if len(added) > MAX_MODULES:
        most = Counter(name.partition(".")[0] for name in added).most_common(3)
        packages = ", ".join(f"{name} {count}" for name, count in most)
        yield f"the import of {module} loads {len(added)} modules ({packages}); the limit is {MAX_MODULES}"
    if cost.milliseconds > MAX_MILLISECONDS:
        yield f"the import of {module} takes {cost.milliseconds:.0f} ms of CPU time; the limit is {MAX_MILLISECONDS}"


def _uses(registry: Registry, kind: str, spec: Spec) -> Iterator[Callable[[], object]]:
    """Yield a function for each way in which det uses a spec. They raise if that is not possible."""
    yield partial(registry.find, kind, spec.name)
    yield partial(registry.load, spec)
    yield partial(registry.config_model, spec)
    if isinstance(spec, FrameworkSpec):
        yield partial(registry.loader, spec)
        yield from (partial(registry.exporter, spec, format) for format in spec.exports)
    if isinstance(spec, BackendSpec | FrameworkSpec):
        yield partial(_check_preparation, registry, spec)
        yield from (partial(registry.adapter, spec, name) for name in spec.adapters)
    if isinstance(spec, ObserverSpec):
        yield partial(_check_methods, registry, spec)
    if isinstance(spec, LauncherSpec):
        yield partial(find_claimed_model, spec.name, ExperimentConfig)
    if isinstance(spec, BackendSpec | LauncherSpec | ObserverSpec | StorageSpec):
        yield partial(_construct, registry, spec)


def _check_methods(registry: Registry, spec: Spec) -> None:
    target = registry.load(spec)
    if isinstance(target, type) and (problems := misspelled_methods(target)):
        raise PluginError(f"plugin {registry.owner(spec)}, {spec.target!r}: {'; '.join(problems)}")


def _check_preparation(registry: Registry, spec: BackendSpec | FrameworkSpec) -> None:
    if spec.prepare and (problem := find_preparation_problem(spec.prepare)):
        raise PluginError(f"plugin {registry.owner(spec)}: {spec.name!r} cannot be prepared: {problem}")


def _construct(registry: Registry, spec: Spec) -> None:
    model = registry.config_model(spec) or NoOptions
    claimed = registry.claimed_model(spec) if isinstance(spec, LauncherSpec) else None
    try:
        arguments = [one.model_validate({}) for one in (model, claimed) if one]
    except ValidationError:
        return  # some options have no default
    registry.call_target(spec, *arguments)


def _answer_problems(registry: Registry, reports: Sequence[PluginReport]) -> Iterator[str]:
    checked = {report.name: report for report in reports}
    for hook, question in _QUESTIONS.items():
        for plugin, answer in registry.call(hook, **question):
            if plugin in checked and (problem := answer_mismatch(answer)):
                yield f"plugin {checked[plugin]}: its {hook} {problem}"
