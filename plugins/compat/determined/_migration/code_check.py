"""Check of Python files for old names, arguments and members of contexts, and for names of other libraries."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from types import ModuleType
from typing import Any, Final

from det_core.package_commands import package_command
from determined import _old_names
from determined._migration.findings import Finding
from determined._migration.tensorflow_names import explain_tensorflow_name
from determined._migration.used_names import UsedName, find_used_names

_PACKAGES = ("determined", "determined_common")
_TENSORFLOW = ("determined.estimator", "determined.experimental.keras", "determined.keras")
"""Modules whose functions are not looked at, because the import of TensorFlow takes seconds."""
_DEEPSPEED = "det has no DeepSpeedTrial yet; write a PyTorchTrial and set distributed: {backend: deepspeed}"
_TF1 = "det needs TensorFlow 2.15; use the same name under tf.compat.v1"

_REMOVED_MEMBERS: Final = {
    "disable_auto_grad_accumulation": _DEEPSPEED,
    "get_train_micro_batch_size_per_gpu": _DEEPSPEED,
    "set_mpu": _DEEPSPEED,
    "wrap_model_engine": _DEEPSPEED,
    "wrap_mpu": _DEEPSPEED,
}
"""Method of an old context -> what to use instead."""

_REMOVED_ELSEWHERE: Final = {
    "numpy.bool": "NumPy 1.24 removed it; use bool",
    "numpy.float": "NumPy 1.24 removed it; use float",
    "numpy.int": "NumPy 1.24 removed it; use int",
    "numpy.object": "NumPy 1.24 removed it; use object",
    "tensorflow.Session": _TF1,
    "tensorflow.app": "TensorFlow 2 removed it; use absl.app",
    "tensorflow.contrib": "TensorFlow 2 removed it; use tensorflow_addons or code of your own",
    "tensorflow.flags": "TensorFlow 2 removed it; use absl.flags",
    "tensorflow.get_variable": _TF1,
    "tensorflow.global_variables_initializer": _TF1,
    "tensorflow.layers": _TF1,
    "tensorflow.logging": _TF1,
    "tensorflow.placeholder": _TF1,
    "tensorflow.train.AdamOptimizer": _TF1,
    "tensorflow.train.GradientDescentOptimizer": _TF1,
    "tensorflow.train.MomentumOptimizer": _TF1,
    "tensorflow.train.get_or_create_global_step": _TF1,
    "tensorflow.variable_scope": _TF1,
    "torch._six": "torch 2 removed it; use the builtin types",
    "torch.distributed._sharded_tensor": "torch 2 removed it; use torch.distributed.tensor",
    "torchtext.data.Field": "torchtext 0.12 removed it, and torchtext is no longer maintained",
    "torchvision.models.utils": "torchvision 0.12 removed it; use torch.hub",
}
"""Name of another library that its present releases do not have -> what to use instead.

Other names of TensorFlow are looked up if it is installed.
"""


def check_code(source: str, file: str) -> Iterator[Finding]:
    """Yield the findings about a Python file.

    Args:
        source: content of the file.
        file: its path in findings.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        yield Finding(file, getattr(error, "lineno", None), "file", f"this is no Python 3 code: {error}")
        return
    findings = [Finding(file, used.line, *found) for used in find_used_names(tree) for found in _explain(used)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _REMOVED_MEMBERS and "context" in ast.unparse(node.value):
            message = f"{ast.unparse(node)}: {_REMOVED_MEMBERS[node.attr]}"
            findings.append(Finding(file, node.lineno, "member", message))
    seen: set[str] = set()
    for finding in sorted(findings, key=attrgetter("line")):
        if finding.message not in seen:  # the first use is enough
            seen.add(finding.message)
            yield finding


def explain_name(path: str) -> str | None:
    """Return why a name under an old import name does not exist, or None if it does.

    Args:
        path: dotted path, which may end with attributes of an object.
    """
    parts = path.split(".")
    module = ""
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        if name in _old_names.OLD_MODULES or _is_file(name, module):
            module = name
            continue
        if module in _old_names.OLD_MODULES:
            message = _explain_member(module, parts[end - 1], name)
            return message or (_old_names.explain_missing(path) if path != name else None)
        if module == "determined.launch":
            return _old_names.explain_missing(name) or f"det has no {name}"
        return None  # an attribute of a module that is a file of det-compat
    return None


def _explain(used: UsedName) -> Iterator[tuple[str, str]]:
    if used.path.partition(".")[0] in _PACKAGES:
        if message := explain_name(used.path):
            yield "name", message
        elif used.call and (message := _explain_arguments(used.path, used.call)):
            yield "argument", message
        return
    name = next((name for name in _REMOVED_ELSEWHERE if f"{used.path}.".startswith(f"{name}.")), None)
    message = f"{name}: {_REMOVED_ELSEWHERE[name]}" if name else explain_tensorflow_name(used.path)
    if message:
        yield "version", message


def _explain_member(module: str, member: str, path: str) -> str | None:
    old = _old_names.OLD_MODULES[module]
    place = old.names.get(member, old.home).partition(":")[0]
    try:
        if member in old.names or (old.home and member in _exported(old.home)) or member.startswith("__"):
            find_spec(place)
            return None
    except ModuleNotFoundError as error:
        package = str(error.name)
        command = package_command("install", package.replace("_", "-"))
        return f"{path} is in {package}, which is not installed; type: {command}"
    return _old_names.explain_missing(path) or f"det has no {path}; docs/migrating.md lists old and new names"


def _exported(home: str) -> list[str]:
    """Return the public names of a module. It is not imported if the list is literal, as its framework is slow."""
    spec = find_spec(home)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {home!r}", name=home)
    if spec.origin:
        with open(spec.origin, encoding="utf-8") as file:  # noqa: PTH123  # an archive is no path
            tree = ast.parse(file.read())
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                try:
                    return list(ast.literal_eval(node.value))
                except ValueError:
                    break
    return list(import_module(home).__all__)


def _is_file(name: str, package: str) -> bool:
    """Return whether a name is a module of det-compat itself. Private modules are none that old code can mean."""
    if name in _PACKAGES:
        return True
    if package not in ("determined", "determined.launch") or name.rpartition(".")[2].startswith("_"):
        return False
    return _old_names.explain_missing(name) is None and find_spec(name) is not None


def _explain_arguments(path: str, call: ast.Call) -> str | None:
    """Return which keyword arguments of a call do not exist, or None."""
    given = [keyword.arg for keyword in call.keywords if keyword.arg]
    if not given or path.startswith(_TENSORFLOW):
        return None
    try:
        target = _find_object(path)
        parameters = inspect.signature(target).parameters
    except (ImportError, AttributeError, TypeError, ValueError):  # without the framework, or without a signature
        return None
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return None
    unknown = [name for name in given if name not in parameters]
    if not unknown:
        return None
    return f"{path}() has no argument {', '.join(unknown)}; its arguments are {', '.join(parameters)}"


def _find_object(path: str) -> Any:
    found: Any = import_module(path.partition(".")[0])
    for end, part in enumerate(path.split(".")[1:], 2):
        name = ".".join(path.split(".")[:end])
        found = (
            import_module(name)
            if isinstance(found, ModuleType) and name in _old_names.OLD_MODULES
            else getattr(found, part)
        )
    return found
