"""Checks of an experiment's code against its config, which read the code without running it.

A finding is an error only if the trial would certainly fail. Other findings are notices.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path

from det_core.config import ExperimentConfig, is_command
from det_core.config._hyperparameters import example_values
from det_core.core.context_dir import context_files
from det_core.errors import ConfigError, InvalidExperimentException, Problem
from det_core.launch._framework_lookup import UNREADABLE, find_framework
from det_core.launch.backends import check_elastic, check_slots, choose_backend
from det_core.similar_names import suggest_name

_LOCAL = "local"
_SAMPLING = ("single", "random", "grid", "async_halving", "adaptive_asha", "pbt")
"""Search methods whose trials have exactly the hyperparameters of the config."""
_ALWAYS_CALLED = (
    "__init__",
    "build_model",
    "build_training_data_loader",
    "build_estimator",
    "build_train_spec",
    "optimizer",
    "train_batch",
)
"""Methods that every framework calls on a trial class that defines them."""
_DYNAMIC = ("__getattr__", "__import__", "create", "eval", "exec", "globals", "locals", "modules", "setattr", "vars")
"""Names by which a module may define others that its text does not show."""
_BATCH_SIZE = ("get_per_slot_batch_size", "get_global_batch_size")
_SCRIPT = re.compile(r"(?:\S*/)?python[\d.]*\s+(?:-u\s+)?(?P<script>[\w./-]+\.py)(?:\s[^;&|<>$`()]*)?")
"""Command that runs a script, and nothing before it."""


def check_code(config: ExperimentConfig, directory: Path) -> list[str]:
    """Check that the entrypoint exists, and that the config has the hyperparameters and slots that it needs.

    Args:
        config: the config of the experiment.
        directory: directory with the user's code. Nothing is checked if it does not exist.

    Returns:
        Notices about what may be wrong.

    Raises:
        ConfigError: the trial would certainly fail.
    """
    if config.entrypoint is None or config.script or not directory.is_dir():
        return []
    code = _Code(directory, frozenset(context_files(directory)))
    entry = (_find_script if is_command(config.entrypoint) else _find_trial)(config, code)
    if entry is None:
        return []
    problems, notices = [], []
    for read in _missing_reads(config, code, entry):
        problem = Problem(
            read.file,
            read.line,
            "",
            f"the code reads the hyperparameter {read.name!r}, which the config does not have"
            f"{suggest_name(read.name, config.hyperparameters)}; add it under hyperparameters",
        )
        if read.certain and config.searcher.name in _SAMPLING:
            problems.append(problem)
        else:
            notices.append(str(problem))
    problems += _wrong_batch_sizes(config, entry)
    if problems:
        raise ConfigError(*dict.fromkeys(problems))
    _check_slots(config, directory)
    return list(dict.fromkeys(notices))


@dataclass(frozen=True)
class _Code:
    """Files that belong to the code of an experiment."""

    directory: Path
    names: Collection[str]
    _trees: dict[str, ast.Module | None] = field(default_factory=dict)

    def module_file(self, module: str) -> str | None:
        """Return the path of a module in the directory, or None if it is not there."""
        path = module.replace(".", "/")
        return next((name for name in (f"{path}.py", f"{path}/__init__.py") if name in self.names), None)

    def parse(self, name: str) -> ast.Module | None:
        """Return the syntax tree of a file, or None if it cannot be parsed."""
        if name not in self._trees:
            try:
                self._trees[name] = ast.parse((self.directory / name).read_bytes(), name)
            except (SyntaxError, *UNREADABLE):
                self._trees[name] = None
        return self._trees[name]


@dataclass(frozen=True)
class _Entry:
    """File with which a trial starts, and the trial class if its definition is certain."""

    file: str
    trial_class: ast.ClassDef | None = None


@dataclass(frozen=True)
class _Read:
    """Place where the code reads a hyperparameter."""

    name: str
    file: str
    line: int
    certain: bool


def _refuse(message: str, *, file: str = "", line: int | None = None) -> None:
    raise ConfigError(Problem(file, line, "" if file else "entrypoint", message))


def _check_slots(config: ExperimentConfig, directory: Path) -> None:
    """Refuse several slots, or a changing number of them, if the framework of the trial cannot use them."""
    slots = config.resources.slots_per_trial
    if slots <= 1 or is_command(config.entrypoint):
        return
    framework = find_framework(str(config.entrypoint), directory)
    if framework is None:
        return
    key = "resources.slots_per_trial"
    try:
        check_slots(framework, slots, config.distributed.backend if config.distributed else None)
        if config.resources.min_slots_per_trial:
            key = "resources.min_slots_per_trial"
            backend = choose_backend(config, framework.name if framework.needs_adapter else None, os.environ)
            check_elastic(framework, backend.name if backend else None)
    except InvalidExperimentException as error:
        raise ConfigError(Problem("", None, key, str(error))) from error


def _find_script(config: ExperimentConfig, code: _Code) -> _Entry | None:
    entrypoint = config.entrypoint or ""
    found = _SCRIPT.fullmatch(entrypoint if isinstance(entrypoint, str) else " ".join(entrypoint))
    if not found or found["script"].startswith(("/", "-", "..")):
        return None
    script = found["script"].removeprefix("./")
    if script not in code.names:
        known = [name for name in code.names if name.endswith(".py")]
        _refuse(f"there is no {script!r} in {code.directory.absolute()}{_hint(code, script, known)}")
    _check_syntax(config, code, script)
    return _Entry(script)


def _find_trial(config: ExperimentConfig, code: _Code) -> _Entry | None:
    module, _, name = str(config.entrypoint).partition(":")
    file = code.module_file(module)
    if file is None:
        if not _may_be_elsewhere(config, code, module):
            known = [path.removesuffix(".py").replace("/", ".") for path in code.names if path.endswith(".py")]
            _refuse(
                f"there is no module {module!r} in {code.directory.absolute()}"
                f"{_hint(code, module.replace('.', '/') + '.py', known, module)}"
            )
        return None
    _check_syntax(config, code, file)
    tree = code.parse(file)
    if tree is None or any(word in _DYNAMIC for word in _words(tree)):
        return None
    bound = [*_bound_names(tree)]
    if "*" in bound:
        return None
    if name not in bound:
        classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        hint = suggest_name(name, classes) or (f"; it has: {', '.join(classes)}" if classes else "")
        _refuse(f"{file} has no class {name!r}{hint}")
    found = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    if len(found) != 1 or bound.count(name) != 1 or found[0].decorator_list:
        return _Entry(file)
    if not (found[0].bases or found[0].keywords):
        expected = "expected a class that derives from a framework's trial, such as PyTorchTrial"
        _refuse(f"{name!r} is not a trial; {expected}", file=file, line=found[0].lineno)
    return _Entry(file, found[0])


def _hint(code: _Code, wanted: str, known: Iterable[str], name: str | None = None) -> str:
    if (code.directory / wanted).exists():
        return f": {wanted} exists, but .detignore excludes it"
    return suggest_name(name or wanted, known) or "; write it, or give the directory with your code as DIR"


def _may_be_elsewhere(config: ExperimentConfig, code: _Code, module: str) -> bool:
    """Return whether workers may find a module that is no Python file in the code."""
    top = module.partition(".")[0]
    variables = config.environment.environment_variables.for_device("cpu")
    return (
        config.launcher.type != _LOCAL
        or "PYTHONPATH" in {**variables, **config.environment.environment_variables.for_device("cuda")}
        or any(re.match(rf"{re.escape(module.replace('.', '/'))}\.[^/]+$", name) for name in code.names)
        or top in sys.builtin_module_names
        or PathFinder.find_spec(top) is not None
    )


def _check_syntax(config: ExperimentConfig, code: _Code, file: str) -> None:
    """Refuse a file that this Python cannot parse, unless another one may run it."""
    if config.launcher.type != _LOCAL or is_command(config.entrypoint):
        return
    try:
        ast.parse((code.directory / file).read_bytes(), file)
    except SyntaxError as error:
        _refuse(f"syntax error: {error.msg}", file=file, line=error.lineno)
    except UNREADABLE as error:
        _refuse(f"the file cannot be read as Python: {error or 'it is nested too deep'}", file=file)


def _words(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.FunctionDef):
            yield node.name


def _bound_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a module binds, and ``*`` for a star import."""
    left = [tree]  # expressions may be deeper than calls may be
    while left:
        for child in ast.iter_child_nodes(left.pop()):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield child.name
                for inner in ast.walk(child):
                    if isinstance(inner, ast.Global):
                        yield from inner.names
                continue
            if isinstance(child, ast.Import | ast.ImportFrom):
                yield from (alias.asname or alias.name.partition(".")[0] for alias in child.names)
            elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                yield child.id
            left.append(child)


def _missing_reads(config: ExperimentConfig, code: _Code, entry: _Entry) -> Iterator[_Read]:
    certain = {id(node) for node in _certain_reads(entry.trial_class)} if entry.trial_class else set()
    for file in _local_imports(code, entry.file):
        tree = code.parse(file)
        if tree is None:
            continue
        written = {key for node in ast.walk(tree) if (key := _written_key(node))}
        for node in ast.walk(tree):
            name = _read_key(node)
            if name and name not in config.hyperparameters and name not in written:
                yield _Read(name, file, getattr(node, "lineno", 0), id(node) in certain)


def _wrong_batch_sizes(config: ExperimentConfig, entry: _Entry) -> Iterator[Problem]:
    """Yield a problem if the trial certainly divides a global batch size that cannot be divided among the slots."""
    slots, known = max(config.resources.slots_per_trial, 1), config.hyperparameters
    if entry.trial_class is None or "global_batch_size" not in known or config.searcher.name not in _SAMPLING:
        return
    wrong = [size for size in example_values(known["global_batch_size"]) if type(size) is not int or size < slots]
    calls = (node for node in _certain_reads(entry.trial_class) if isinstance(node, ast.Call))
    line = next((node.lineno for node in calls if getattr(node.func, "attr", "") in _BATCH_SIZE), None)
    if wrong and line is not None:
        yield Problem(
            "",
            None,
            "hyperparameters.global_batch_size",
            f"got {wrong[0]!r}; expected an integer of at least {slots}, which {entry.file}:{line} divides among the "
            "slots",
        )


def _local_imports(code: _Code, start: str) -> list[str]:
    """Return the files of the code that a file imports, directly or indirectly, and the file itself."""
    found = [start]
    for file in found:  # grows
        tree = code.parse(file)
        package = file.split("/")[:-1]
        for node in ast.walk(tree) if tree else ():
            modules: list[str] = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                parent = package[: len(package) - node.level + 1] if node.level else []
                base = ".".join([*parent, *filter(None, [node.module])])
                modules = [base, *(f"{base}.{alias.name}".lstrip(".") for alias in node.names)]
            for module in modules:
                path = code.module_file(module)
                if path and path not in found:
                    found.append(path)
    return found


def _read_key(node: ast.AST) -> str | None:
    """Return the hyperparameter that an expression reads, or None."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if not _is_named(node.func.value, "context"):
            return None
        if node.func.attr in _BATCH_SIZE:
            return "global_batch_size"
        return _text(node.args[0]) if node.func.attr == "get_hparam" and len(node.args) == 1 else None
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        value = node.value
        called = isinstance(value, ast.Call) and _is_named(value.func, "get_hparams")
        return _text(node.slice) if called or _is_named(value, "hparams") else None
    return None


def _written_key(node: ast.AST) -> str | None:
    """Return the hyperparameter that a statement sets in a copy, or None."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return _text(node.slice)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setdefault":
        return _text(node.args[0]) if node.args else None
    return None


def _is_named(node: ast.expr, name: str) -> bool:
    return (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.Attribute) and node.attr == name)


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _certain_reads(trial_class: ast.ClassDef) -> Iterator[ast.expr]:
    """Yield the reads of hyperparameters that happen whenever the class trains."""
    methods: Mapping[str, list[ast.FunctionDef]] = {}
    for node in trial_class.body:
        if isinstance(node, ast.FunctionDef):
            methods = {**methods, node.name: [*methods.get(node.name, ()), node]}
    for name in _ALWAYS_CALLED:
        for method in methods.get(name, ()):
            if len(methods[name]) == 1 and not method.decorator_list:
                for statement in _certain_statements(method.body):
                    for expression in _certain_expressions(statement):
                        direct = not (isinstance(expression, ast.Subscript) and _is_named(expression.value, "hparams"))
                        if direct and _read_key(expression):
                            yield expression


def _certain_statements(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the statements that always run, until one that may leave the function."""
    for statement in body:
        if isinstance(statement, ast.If | ast.While):
            yield statement.test
        elif isinstance(statement, ast.For):
            yield statement.iter
        elif isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return | ast.Raise):
            yield statement
        leaves = (ast.Return, ast.Raise, ast.Yield, ast.YieldFrom, ast.Try, ast.With)
        if any(isinstance(node, leaves) for node in ast.walk(statement)):
            return


def _certain_expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the parts of a statement or expression that are always evaluated."""
    left: list[ast.AST] = [node]  # expressions may be deeper than calls may be
    while left:
        node = left.pop()
        if isinstance(node, ast.expr):
            yield node
        if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            continue
        children: Iterable[ast.AST] = ast.iter_child_nodes(node)
        if isinstance(node, ast.IfExp):
            children = [node.test]
        elif isinstance(node, ast.BoolOp):
            children = node.values[:1]
        elif isinstance(node, ast.Compare):
            children = [node.left, *node.comparators[:1]]
        left += reversed([*children])
