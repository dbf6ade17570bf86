"""Every public class, and every function that users call, works or raises one clear error, whatever values it gets."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import public_api
import pytest

from det_core.config import Length, NoOptions, parse_config
from det_core.core import single_process
from det_core.errors import DetError
from det_core.interfaces.account_records import Role
from det_core.interfaces.records import State
from det_core.tracking import open_store
from det_core.trial import Every, Trial

from .nasty_values import NUMBERS, TEXTS, interrupted_after_seconds

pytestmark = pytest.mark.integration  # it calls everything public of several distributions

PACKAGES = {
    "det_core": ("", "config", "core", "experimental", "experimental.client", "tracking", "trial"),
    "det_cluster": (),
    "det_torch": ("",),
}
"""Packages, with the modules whose functions users call."""
CONFIG = {"searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}}}
PATHS = [text for name, text in TEXTS.items() if name not in ("NUL", "surrogate")]  # no file system has these
NASTY: Mapping[str, Sequence[Any]] = {
    "str": [*TEXTS.values()],
    "Path": [*map(Path, PATHS)],
    "PathLike": PATHS,
    "int": [number for number in NUMBERS.values() if isinstance(number, int)],
    "float": [*NUMBERS.values()],
    "Any": [*TEXTS.values(), *NUMBERS.values()],
}
"""Values by a word of the annotation of a parameter."""
MAPPINGS = {"Mapping", "dict"}
SEQUENCES = {"Sequence", "list", "tuple", "Iterable", "Collection"}
USUAL: Mapping[str, Any] = {
    **{word: {} for word in MAPPINGS},
    **dict.fromkeys(SEQUENCES, ()),
    **{"str": "a", "int": 1, "float": 1.0, "bool": True, "bytes": b"", "Any": "a", "None": None},
    **{"Callable": lambda *_: None, "Dataset": [1, 2], "_Finite": [[0], [1]], "Path": Path("a"), "Points": Every(1)},
    **{"State": State.ACTIVE, "Role": Role.USER, "datetime": datetime.now(timezone.utc), "type": Trial},
    **{"BaseModel": NoOptions(), "Length": Length(1)},
    **dict.fromkeys(("rank", "local_rank", "cross_rank"), 0),
}
"""Values of required parameters by their name or a word of their annotation."""
INTERNAL = ("object has no attribute", "NoneType", "codec can't", "too large to convert", "object at 0x")
"""Parts of messages that are for programmers."""
NEED_PARTS = {
    *("AccessTokenRecord", "AgentGroup", "CheckpointContext", "CheckpointRecord", "Context", "Delivery"),
    *(
        "EngineLaunch",
        "ForkedWorker",
        "LRScheduler",
        "ModelVersion",
        "NodeAgent",
        "ObjectStorage",
        "ObserverContext",
        "PreemptContext",
    ),
    *("ProcessGroup", "PyTorchExperimentalContext", "PyTorchTrial", "QueuedLaunch", "ScoredCheckpoint"),
    *("SearcherContext", "SlotReservation", "Status", "TorchBatchProcessor", "TorchBatchProcessorContext"),
    *("TrainContext", "Trainer", "TrialLoop", "TrialResult", "WebhookRecord", "explore_hyperparameters"),
    *("reset_parameters", "sample_hyperparameters", "to_device"),
}
"""Classes and functions that need objects which only det or a framework makes."""


def public_calls() -> Iterator[Callable[..., Any]]:
    """Yield the public classes, and the functions that users call."""
    for package, modules in PACKAGES.items():
        for path, described in public_api.load_modules()[package].items():
            module, below = import_module(path), path.removeprefix(package).removeprefix(".")
            for name in public_api.public_names(described) if not below.startswith("testing") else ():
                found = getattr(module, name)
                is_class = inspect.isclass(found) and not issubclass(found, (BaseException, Enum, dict))
                if is_class or (inspect.isfunction(found) and below in modules):
                    yield found


def words(parameter: inspect.Parameter) -> list[str]:
    return re.findall(r"[A-Za-z_]+", str(parameter.annotation))


def nasty_values(parameter: inspect.Parameter) -> Iterator[Any]:
    """Yield values of the kinds in the annotation of a parameter, as items of a mapping or sequence if it is one."""
    found = {*words(parameter)}
    kinds = found & {"Path", "PathLike"} or (set() if "Callable" in found else found & {*NASTY})
    for value in (value for kind in sorted(kinds) for value in NASTY[kind]):
        if found & MAPPINGS:
            yield {"a": value}
            yield {str(value): value}
        elif found & SEQUENCES:
            yield [value]
        else:
            yield value


def use(call: Callable[..., Any], arguments: Mapping[str, Any]) -> str:
    """Call a class or function, and return what is wrong with its error, if anything is."""
    try:
        with interrupted_after_seconds(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = call(**arguments)
            if isinstance(result, AbstractContextManager) and not isinstance(result, Path):
                with result:
                    pass
            elif isinstance(result, Iterator):
                next(result, None)
    except (DetError, ValueError, TypeError, OSError) as error:
        unclear = isinstance(error, UnicodeError) or any(part in str(error) for part in INTERNAL)
        return repr(error) if unclear else ""
    except KeyboardInterrupt:
        return "it waits"
    except Exception as error:  # noqa: BLE001  (the outcome)
        return repr(error)
    return ""


def test_nasty_values_work_or_are_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "some" / "where"
    directory.mkdir(parents=True)
    monkeypatch.chdir(directory)
    config = parse_config(CONFIG)
    with open_store() as store:
        trial = store.create_trial(store.create_experiment(config=CONFIG).id, hparams={}, seed=0)
        parts = {
            **USUAL,
            "DistributedContext": single_process(),
            "ExperimentConfig": config,
            "SearcherConfig": config.searcher,
            "Run": store.start_run(trial.id, allocation_id="a"),
            "TrackingStore": store,
            "master": store.url,
            "url": store.url,
        }
        found, incomplete = {}, set()
        for call in dict.fromkeys(public_calls()):
            parameters = [one for one in inspect.signature(call).parameters.values() if one.kind != one.VAR_KEYWORD]
            required = [one for one in parameters if one.default is one.empty and one.kind != one.VAR_POSITIONAL]
            usual = {
                one.name: [parts[word] for word in (one.name, *words(one)) if word in parts][:1] for one in required
            }
            if not all(usual.values()):
                incomplete.add(call.__name__)
                continue
            arguments = {parameter: value for parameter, (value,) in usual.items()}
            for one in parameters:
                for value in nasty_values(one):
                    if problem := use(call, {**arguments, one.name: value}):
                        found[call.__name__, one.name, ascii(value)[:40]] = problem
    assert not found
    assert incomplete == NEED_PARTS
