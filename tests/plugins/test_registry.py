"""Discovery of plugins, with distributions that are really installed on the path."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import importlib_metadata
import pytest
from det_testing.plugin_metadata import write_plugin_metadata

from det_core.errors import PluginClash, PluginError, PluginNotFound
from det_core.package_commands import package_command
from det_core.plugins import Registry, find_overwritten_files, plugin_registry

STORAGE = """
import det_core
from det_core.specs import StorageSpec
@det_core.hookimpl
def det_storage():
    yield StorageSpec(name={name!r}, target={target!r}, install="pip install zap", api={api})
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that installs a distribution with one module on the path."""
    monkeypatch.syspath_prepend(tmp_path)

    def lay(name: str, source: str, module: str = "") -> None:
        module = module or name.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(source)
        write_plugin_metadata(tmp_path, name, module, version="1.2")

    yield lay
    for name in [name for name in sys.modules if name.startswith("zz_")]:
        del sys.modules[name]


def scan(tmp_path: Path, disabled: tuple[str, ...] = ()) -> Registry:
    found = importlib_metadata.Distribution.discover(path=[str(tmp_path)])
    return Registry([ep for dist in found for ep in dist.entry_points], disabled)


def storage(name: str = "zap", target: str = "zz_a:thing", api: int = 1) -> str:
    return STORAGE.format(name=name, target=target, api=api)


def test_a_plugin_is_found_and_loaded_on_first_use(install: Install, tmp_path: Path) -> None:
    install("zz-a", storage() + "def thing(config): ...\n")
    registry = scan(tmp_path)
    assert registry.names("storage") == ["zap"]
    assert registry.load(registry.find("storage", "zap")).__name__ == "thing"
    (report,) = registry.reports
    assert (report.name, report.version, report.status) == ("zz-a", "1.2", "ok")


def test_a_clash_is_an_error_that_lists_every_provider(install: Install, tmp_path: Path) -> None:
    install("zz-a", storage())
    install("zz-b", storage())
    registry = scan(tmp_path)
    with pytest.raises(PluginClash, match=r"'zap'.*zz-a 1.2.*zz-b 1.2"):
        registry.find("storage", "zap")
    assert len(registry.clashes()) == 1
    assert scan(tmp_path, disabled=("zz_B",)).find("storage", "zap").name == "zap"


@pytest.mark.parametrize(
    ("source", "status", "problem"),
    [
        ("import no_such_module", "broken", "ModuleNotFoundError"),
        ("raise SystemError('boom')", "broken", "SystemError: boom"),
        (storage(api=2), "incompatible", "api 2"),
        ("import det_core\n@det_core.hookimpl\ndef det_from_the_future(): pass", "incompatible", "det_from_the_future"),
        ("import det_core\n@det_core.hookimpl\ndef det_storage(what): pass", "incompatible", "what"),
        ("import det_core\n@det_core.hookimpl\ndef det_storage(): yield 'zap'", "incompatible", "expected StorageSpec"),
        ("import det_core\n@det_core.hookimpl\ndef det_storage(): return 5", "incompatible", "det_storage returns 5"),
        ("def det_storage(): return []", "incompatible", "its det_storage lacks @det_core.hookimpl"),
        (
            "import det_core\n@det_core.hookimpl\ndef det_storages(): pass",
            "incompatible",
            "did you mean 'det_storage'?",
        ),
        ("import det_core\n@det_core.hookimpl\ndef det_storage(): return 1 / 0", "broken", "ZeroDivisionError"),
        ("import sys; sys.exit('no licence')", "broken", "sys.exit('no licence')"),
        ("import det_core\n@det_core.hookimpl\ndef det_storage(): raise SystemExit", "broken", "sys.exit()"),
    ],
)
def test_a_bad_plugin_causes_one_warning_and_does_not_affect_others(
    install: Install, tmp_path: Path, caplog: pytest.LogCaptureFixture, source: str, status: str, problem: str
) -> None:
    install("zz-bad", source)
    install("zz-good", storage("fine"))
    with caplog.at_level(logging.WARNING, "det.plugins"):
        registry = scan(tmp_path)
    assert len(caplog.records) == 1
    assert registry.names("storage") == ["fine"]
    bad = next(report for report in registry.reports if report.name == "zz-bad")
    assert bad.status == status
    assert problem in bad.problem
    with pytest.raises(PluginNotFound, match="zz-bad"):
        registry.find("storage", "zap")


def test_a_kind_is_found_as_it_is_typed_and_an_unknown_one_is_named(install: Install, tmp_path: Path) -> None:
    install("zz-a", storage())
    registry = scan(tmp_path)
    assert registry.find("storage", "zap") is registry.specs("storage")[0]
    with pytest.raises(PluginNotFound, match=r"search method 'asha' \(installed: none\)"):
        registry.find("search-method", "asha")
    with pytest.raises(PluginNotFound, match=r"kind of plugins 'store'; expected one of framework, .*search_method"):
        registry.find("store", "zap")


def test_the_error_of_a_name_from_a_broken_plugin_names_the_cause(install: Install, tmp_path: Path) -> None:
    install("det-storage-s3", "import no_such_module", module="zz_s3")
    with pytest.raises(PluginNotFound, match=r"det-storage-s3 1.2.*broken.*no_such_module"):
        scan(tmp_path).find("storage", "s3")


def test_an_unknown_name_is_answered_with_the_pip_command_or_a_suggestion(install: Install, tmp_path: Path) -> None:
    install("zz-a", storage())
    registry = scan(tmp_path)
    with pytest.raises(PluginNotFound, match=re.escape(package_command("install", "det-storage-s3"))):
        registry.find("storage", "s3")
    with pytest.raises(PluginNotFound, match="did you mean 'zap'"):
        registry.find("storage", "zapp")


def test_a_target_that_does_not_import_names_plugin_cause_and_command(install: Install, tmp_path: Path) -> None:
    install("zz-a", storage(target="zz_a:nothing"))
    registry = scan(tmp_path)
    with pytest.raises(PluginError, match=r"zz-a 1.2.*zz_a:nothing.*no attribute.*pip install zap"):
        registry.load(registry.find("storage", "zap"))


def test_a_target_that_ends_the_program_is_an_error(install: Install, tmp_path: Path) -> None:
    """Otherwise ``det`` would end with exit code 0 and print nothing."""
    install("zz-a", storage(target="zz_exits:Store"))
    (tmp_path / "zz_exits.py").write_text("raise SystemExit")
    registry = scan(tmp_path)
    with pytest.raises(PluginError, match=r"zz-a 1\.2.*zz_exits:Store.*it ended the program: sys\.exit\(\)"):
        registry.load(registry.find("storage", "zap"))


DAMAGES: dict[str, dict[str, bytes | None]] = {
    "no metadata": {"METADATA": None},
    "no name": {"METADATA": b"Version: 1.0\n"},
    "no text": {"METADATA": b"Name: zz\xff\nVersion: 1.0\n"},
    "entry points": {"entry_points.txt": b"[det]\nzz_bad\n"},
    "entry points of others": {"entry_points.txt": b"[console_scripts]\nzz_bad\n"},
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_distribution_does_not_affect_others(
    install: Install, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """Otherwise a single damaged distribution would end every command with a traceback."""
    # Each distribution is read several times. Two hundred others would take seconds.
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not entry.endswith("-packages")])
    install("zz-bad", storage("bad"))
    install("zz-good", storage("fine"))
    for name, content in DAMAGES[damage].items():
        file = tmp_path / "zz_bad-1.2.dist-info" / name
        file.unlink() if content is None else file.write_bytes(content)
    with caplog.at_level(logging.WARNING, "det.plugins"):
        found = plugin_registry.__wrapped__()
        assert list(find_overwritten_files(["zz-good"])) == []
    assert "fine" in found.names("storage")
    assert "bad" not in found.names("storage")
    assert any("is damaged" in one.getMessage() and "zz_bad" in one.getMessage() for one in caplog.records)


CHOICE = """
import det_core
@det_core.hookimpl
def det_choose_framework(mro): return {answer!r} if {base!r} in mro else None
"""


MISFITS = """
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.launcher import Launcher
class Half(StorageManager):
    def put(self, storage_id, path, source): ...
class Other(Launcher):
    def start(self, request): ...
class Whole(Half):
    def __init__(self, config): self.config = config
    def get(self, storage_id, path, target): ...
    def list(self, storage_id): return {}
    def delete(self, storage_id, paths): ...
class Picky(Whole):
    def __init__(self): ...
def nothing(config): ...
def two(config, more): ...
number = 42
"""


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("number", "it is 42; expected a subclass of .*StorageManager, or a function that returns"),
        ("Other", "it is the class Other; expected a subclass of .*StorageManager"),
        ("Half", "the class Half does not implement delete, get, list"),
        ("Picky", r"it cannot be called with \(config\): too many"),
        ("two", r"it cannot be called with \(config\): missing.*more"),
        ("nothing", "it returned None; expected a subclass of .*StorageManager"),
    ],
)
def test_a_target_of_the_wrong_kind_is_an_error(install: Install, tmp_path: Path, target: str, problem: str) -> None:
    install("zz-a", storage(target=f"zz_a:{target}") + MISFITS)
    registry = scan(tmp_path)
    with pytest.raises(PluginError, match=rf"plugin zz-a 1.2 \(zz_a\) names 'zz_a:{target}' for 'zap', but {problem}"):
        registry.call_target(registry.find("storage", "zap"), "config")


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        ("KeyError('home')", PluginError, r"plugin zz-a 1\.2 \(zz_a\) failed to make 'zap' with .*: KeyError: 'home'"),
        ("SystemExit(3)", PluginError, r"plugin zz-a 1\.2 \(zz_a\) failed to make 'zap' with .*: SystemExit: 3"),
        ("ConnectionError('later')", ConnectionError, "^later$"),
    ],
)
def test_a_target_that_cannot_be_constructed_is_an_error(
    install: Install, tmp_path: Path, error: str, expected: type[Exception], message: str
) -> None:
    """Errors of the operating system stay what they are, because a later attempt may succeed."""
    install("zz-a", storage(target="zz_a:fails") + f"def fails(config): raise {error}\n")
    registry = scan(tmp_path)
    with pytest.raises(expected, match=message):
        registry.call_target(registry.find("storage", "zap"), "config")


def test_a_target_that_suits_its_kind_is_called(install: Install, tmp_path: Path) -> None:
    install("zz-a", storage(target="zz_a:Whole") + MISFITS)
    registry = scan(tmp_path)
    assert registry.call_target(registry.find("storage", "zap"), "config").config == "config"


@pytest.mark.parametrize("kind", ["frameworks:FrameworkSpec", "commands:CommandSpec"])
def test_a_class_where_a_function_is_expected_is_an_error(install: Install, tmp_path: Path, kind: str) -> None:
    """Creating an instance of it would look like training that ended well."""
    hook, _, spec = kind.partition(":")
    install(
        "zz-a",
        f"import det_core\nfrom det_core.specs import {spec}\n@det_core.hookimpl\ndef det_{hook}():\n"
        f"    yield {spec}(name='zap', target='zz_a:Adapter')\nclass Adapter: ...\n",
    )
    registry = scan(tmp_path)
    with pytest.raises(PluginError, match="'zz_a:Adapter' for 'zap', but it is the class Adapter; expected a function"):
        registry.call_target(registry.find(hook[:-1], "zap"), 1, 2)


def test_a_config_model_that_is_not_a_pydantic_model_is_an_error(install: Install, tmp_path: Path) -> None:
    spec = storage().replace("install=", "config_model='zz_a:number', install=")
    install("zz-a", spec + MISFITS)
    registry = scan(tmp_path)
    with pytest.raises(PluginError, match=r"zz-a .*'zz_a:number' for 'zap', but it is 42; expected a pydantic"):
        registry.config_model(registry.find("storage", "zap"))


@pytest.mark.parametrize("change", ["name=5", "target=None"])
def test_a_spec_with_fields_of_wrong_types_does_not_affect_other_plugins(
    install: Install, tmp_path: Path, change: str
) -> None:
    key = change.partition("=")[0]
    install("zz-a", storage().replace(f"{key}='{'zap' if key == 'name' else 'zz_a:thing'}'", change))
    install("zz-b", storage("other"))
    registry = scan(tmp_path)
    assert registry.names("storage") == ["other"]
    (report,) = [report for report in registry.reports if report.name == "zz-a"]
    assert report.status == "incompatible"
    assert "expected strings for name and target" in report.problem


def test_plugins_that_choose_differently_are_an_error(install: Install, tmp_path: Path) -> None:
    install("zz-a", CHOICE.format(answer="one", base="x.Base"))
    install("zz-b", CHOICE.format(answer="two", base="x.Mixin"))
    registry = scan(tmp_path)
    assert registry.choose("det_choose_framework", mro=["x.Base"]) == "one"
    assert registry.choose("det_choose_framework", mro=["y.Base"]) is None
    with pytest.raises(PluginClash, match=r"zz-a answers 'one'.*zz-b answers 'two'|zz-b .*'two'.*zz-a .*'one'"):
        registry.choose("det_choose_framework", mro=["x.Base", "x.Mixin"])


def test_an_answer_that_is_not_a_name_is_an_error(install: Install, tmp_path: Path) -> None:
    install("zz-a", CHOICE.format(answer=["one"], base="x.Base"))
    with pytest.raises(PluginError, match=r"plugin zz-a: its det_choose_framework answers \['one'\]; expected a name"):
        scan(tmp_path).choose("det_choose_framework", mro=["x.Base"])


OBSERVER = """
import det_core
seen = []
@det_core.hookimpl
def det_metrics_reported(event):
    seen.append(event.steps_completed)
    {then}
"""


def test_an_observer_that_raises_does_not_stop_the_others(
    install: Install, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, then in (("zz-a", "raise RuntimeError('a')"), ("zz-b", "pass"), ("zz-c", "raise RuntimeError('c')")):
        install(name, OBSERVER.format(then=then))
    event = SimpleNamespace(steps_completed=7)
    for _ in scan(tmp_path).call("det_metrics_reported", event=event):
        pass
    assert [sys.modules[name].seen for name in ("zz_a", "zz_b", "zz_c")] == [[7], [7], [7]]
    assert {record.args[0] for record in caplog.records if record.args} == {"zz-a", "zz-c"}


def test_every_hook_shows_an_example_and_the_table_lists_it() -> None:
    from det_core import hookspecs

    hooks = [value for name, value in vars(hookspecs).items() if name.startswith("det_")]
    assert hooks
    assert all("Example::" in (hook.__doc__ or "") for hook in hooks)
    lacking = [h.__name__ for h in hooks if h.__name__ not in hookspecs.__doc__ and not registers(h.__name__)]
    assert lacking == []


def registers(hook: str) -> bool:
    from det_core.plugins import KINDS

    return hook in {name for name, _ in KINDS.values()}


@pytest.mark.integration
@pytest.mark.parametrize("module", ["det_core.plugins.builtin", "det_torch.plugin", "det_torch"])
def test_importing_a_plugin_loads_nothing_heavy(module: str) -> None:
    heavy = ("torch", "tensorflow", "boto3", "sqlalchemy", "pydantic", "yaml", "rich", "numpy")
    script = f"import sys, {module}; print(*[name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.split() == []
