"""The ``det plugins`` commands."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path

import pytest
from det_testing.plugin_metadata import write_plugin_metadata

from det_core.cli import main
from det_core.cli.commands import _plugin_checks
from det_core.package_commands import package_command
from det_core.plugins import ImportCost, plugin_registry

from .conftest import Det, Install, command_plugin, disable_plugins_except


def test_list_shows_distributions_and_their_plugins(det: Det) -> None:
    out = det("plugins", "list").out
    assert out.splitlines()[0].split() == ["DISTRIBUTION", "VERSION", "STATUS", "OFFERS"]
    assert "storage directory, shared_fs" in out
    core = next(one for one in det("plugins", "list", "--json").json if one["name"] == "det-core")
    assert {"kind": "launcher", "name": "local"}.items() <= next(
        one.items() for one in core["provides"] if one["kind"] == "launcher"
    )


OBSERVER = """
from det_core import hookimpl
from det_core.interfaces.observer import Observer
from det_core.specs import ObserverSpec

@hookimpl
def det_observers():
    yield ObserverSpec(name="watcher", target="det_watcher:Watcher")

@hookimpl
def det_trial_started(event):
    pass

class Watcher(Observer):
    def __init__(self, config):
        pass

    def trial_finished(self, event):
        pass

    def metrics_reported(self, event):
        pass
"""


def test_plugins_show_what_they_receive(det: Det, install: Install) -> None:
    install("det-watcher", OBSERVER)
    assert "observer watcher; hook det_trial_started" in det("plugins", "list").out
    shown = det("plugins", "show", "det-watcher").out
    assert "hooks    det_trial_started" in shown
    assert "watcher   trial_finished, metrics_reported" in shown
    found = det("plugins", "show", "det-watcher", "--json").json
    assert found["hooks"] == ["det_trial_started"]
    assert found["provides"][0]["receives"] == ["trial_finished", "metrics_reported"]


def test_show_prints_one_distribution(det: Det) -> None:
    out = det("plugins", "show", "det_core").out
    assert "det_core.storage.directory:DirectoryStorage" in out
    assert det("plugins", "show", "Det.Core", "--json").json["status"] == "ok"


@pytest.mark.integration
@pytest.mark.usefixtures("core_alone")
def test_check_passes_without_problems(det: Det) -> None:
    result = det("plugins", "check")
    assert (result.code, result.out.rstrip().endswith(": ok")) == (0, True)
    assert det("plugins", "check", "--json").json == {"ok": True, "problems": []}


def hook(definition: str, body: str, more: str = "") -> str:
    """Return the code of a plugin that implements one hook."""
    return (
        "from det_core import hookimpl\nfrom det_core.specs import StorageSpec\n"
        f"@hookimpl\ndef {definition}:\n    {body}\n{more}"
    )


def store(target: str, more: str = "") -> str:
    return hook("det_storage()", f"yield StorageSpec(name='odd', target={target!r})", more)


def command(fields: str) -> str:
    return command_plugin(f"name='odd', {fields}")


BROKEN = {
    "det-api": (command("target='os:fspath', api=2"), "'odd' was written for api 2", "install matching releases"),
    "det-hook": (hook("det_storages()", "pass"), "implements det_storages", "did you mean 'det_storage'?"),
    "det-arguments": (hook("det_storage(what)", "pass"), "{'what'}", "lists the hooks' arguments"),
    "det-no-model": (command("target='os:fspath', config_model='os:Gone'"), "'os:Gone'", "no attribute 'Gone'"),
    "det-no-pydantic": (command("target='os:fspath', config_model='os:sep'"), "expected a pydantic.BaseModel class"),
    "det-no-target": (command("target='nowhere:gone', install='pip install x'"), "'nowhere:gone'", "pip install x"),
    "det-no-store": (store("os:DirEntry"), "it is the class DirEntry", "expected a subclass of", "StorageManager"),
    "det-signature": (command("target='os:getcwd'"), "it cannot be called with (parser)"),
    "det-forgets": ("def det_storage():\n    return []\n", "det_storage lacks @det_core.hookimpl", "add the decorator"),
    "det-no-list": (hook("det_storage()", "return 5"), "det_storage returns 5", "yield each StorageSpec"),
    "det-wrong-type": (hook("det_storage()", "yield 'odd'"), "det_storage yields 'odd'; expected StorageSpec"),
    "det-list": (hook("det_choose_framework(mro)", "return ['odd']"), "answers ['odd']; expected a name or None"),
    "det-clash": (
        command_plugin("name='run', target='os:fspath'"),
        "command 'run'",
        "det-core",
        "Uninstall all but one",
    ),
    "det-no-instance": (
        store("det_no_instance:make", "def make(config):\n    return {}['home']\n"),
        "failed to make 'odd' with 'det_no_instance:make': KeyError: 'home'",
    ),
    "det-misspells": (
        "from det_core import hookimpl\nfrom det_core.specs import ObserverSpec\n"
        "from det_core.interfaces.observer import Observer\n"
        "@hookimpl\ndef det_observers():\n    yield ObserverSpec(name='odd', target='det_misspells:Odd')\n"
        "class Odd(Observer):\n    def __init__(self, config): pass\n    def trial_finishd(self, event): pass\n",
        "det does not call its method trial_finishd; did you mean 'trial_finished'?",
    ),
    "det-raises": ("raise ImportError('no cuda')", "broken", "no cuda", "DET_DISABLE_PLUGINS"),
}
"""Names of distributions mapped to the code of the plugin, and the words with which it is reported."""
COSTLY = {
    "det-heavy": ("import big_framework", "61 modules", "big_framework 60", "the limit is 50", "target"),
    "det-slow": (
        "import time\nbegin = time.process_time()\nwhile time.process_time() - begin < 0.2:\n    pass\n",
        "ms of CPU time; the limit is 100",
        "target",
    ),
    "det-threads": (
        "import sys, threading, time\nfrom det_core import hookimpl\nfrom det_core.specs import FrameworkSpec\n"
        "@hookimpl\ndef det_frameworks():\n"
        "    yield FrameworkSpec(name='odd', target='det_threads:train', prepare=['det_threads'])\n"
        "def train(trial_class, core_context): pass\n"
        "if 'det_core.launch._fork_server' in sys.orig_argv:\n"
        "    threading.Thread(target=time.sleep, args=[60], daemon=True).start()\n",
        "'odd' cannot be prepared: the import of det_threads started threads (1), which forks would not have",
    ),
    "det-exits": ("import sys\nif sys.argv[0] == '-c':\n    raise SystemExit('no display')\n", "no display"),
}
"""The same of plugins whose import is measured in a process of its own."""


def check_installed(plugins: Mapping[str, tuple[str, ...]], site: Path, patch: pytest.MonkeyPatch) -> list[str]:
    """Install plugins of a table and det-core alone, and return the problems that one check reports."""
    for name, (code, *_) in plugins.items():
        write_plugin_metadata(site, name)
        (site / f"{name.replace('-', '_')}.py").write_text(code.replace("'odd'", f"'{name}'"))
    disable_plugins_except(patch, "det-core")
    patch.syspath_prepend(site)
    plugin_registry.cache_clear()
    printed = io.StringIO()
    with redirect_stdout(printed):
        code = main(["plugins", "check", "--json"])
    document = json.loads(printed.getvalue())
    assert (code, document["ok"]) == (1, False)
    found: list[str] = document["problems"]
    return found


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return what one check reports of all broken plugins, without measuring their imports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("det_core.cli.commands._plugin_checks.measure_import", lambda module: ImportCost(0, []))
        found = check_installed(BROKEN, tmp_path_factory.mktemp("site"), patch)
    plugin_registry.cache_clear()
    return found


def assert_reported(problems: Sequence[str], name: str, words: Sequence[str]) -> None:
    [problem] = [problem for problem in problems if f"{name} 1.0" in problem]
    assert [word for word in words if word.replace("'odd'", f"'{name}'") not in problem] == []


@pytest.mark.integration
@pytest.mark.parametrize("name", BROKEN)
def test_check_reports_a_broken_plugin_with_its_reason(problems: list[str], name: str) -> None:
    assert_reported(problems, name, BROKEN[name][1:])


def test_check_reports_nothing_else(problems: list[str]) -> None:
    assert len(problems) == len(BROKEN)


@pytest.mark.integration
def test_check_reports_costly_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "big_framework"
    package.mkdir()
    (package / "__init__.py").write_text("".join(f"from . import part{number}\n" for number in range(59)))
    for number in range(59):
        (package / f"part{number}.py").touch()
    problems = check_installed(COSTLY, tmp_path, monkeypatch)
    for name, (_, *words) in COSTLY.items():
        assert_reported(problems, name, words)
    assert len(problems) == len(COSTLY)


@pytest.mark.parametrize(
    ("costs", "problems"),
    [
        ([ImportCost(100, ["m"] * 50)], 0),
        ([ImportCost(100, ["m"] * 50 + ["det_core.x"])], 0),
        ([ImportCost(100, ["m"] * 51)], 1),
        ([ImportCost(101, []), ImportCost(100, [])], 0),  # the second import finds compiled modules
        ([ImportCost(101, []), ImportCost(102, []), ImportCost(100, [])], 0),
        ([ImportCost(101, ["m"] * 51), ImportCost(102, ["m"] * 51), ImportCost(103, ["m"] * 51)], 2),
    ],
)
def test_limits_of_an_import_are_inclusive(
    monkeypatch: pytest.MonkeyPatch, costs: list[ImportCost], problems: int
) -> None:
    monkeypatch.setattr(_plugin_checks, "measure_import", lambda module, first=(): costs.pop(0))
    assert len([*_plugin_checks._import_problems("m")]) == problems
    assert costs == []


@pytest.mark.usefixtures("core_alone")
@pytest.mark.integration
def test_check_of_a_name_reports_this_plugin_only(det: Det, install: Install) -> None:
    for name in ("det-raises", "det-hook"):
        install(name, BROKEN[name][0])
    [problem] = det("plugins", "check", "det-raises").out.splitlines()
    assert "det-raises 1.0" in problem
    assert det("plugins", "check", "det-raises", "--json").json == {"ok": False, "problems": [problem]}
    assert "no cuda" in det("plugins", "list").out
    assert "no cuda" in det("plugins", "show", "det-raises").out


@pytest.mark.integration
@pytest.mark.usefixtures("core_alone")
def test_check_says_that_a_plugin_is_disabled(det: Det, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("det-off", "")
    monkeypatch.setenv("DET_DISABLE_PLUGINS", "Det.Off")
    result = det("plugins", "check", "det-off")
    assert (result.code, "det-off 1.0 (det_off) is disabled" in result.out) == (1, True)


NEEDS = {
    "det-deepspeed": "deepspeed",
    "det-estimator": "tensorflow",
    "det-horovod": "horovod",
    "det-jax": "jax",
    "det-keras": "tensorflow",
    "det-storage-gcs": "google.cloud.storage",
    "det-storage-s3": "boto3",
    "det-torch": "torch",
    "det-torch-distributed": "torch",
}


@pytest.mark.slow
@pytest.mark.timeout(600)  # it takes 50 CPU seconds
def test_check_accepts_the_installed_plugins() -> None:
    """Plugins whose requirements are not on this machine are left out."""
    off = ",".join(name for name, module in NEEDS.items() if not is_installed(module))
    command = [sys.executable, "-m", "det_core.cli", "plugins", "check"]
    environment = {**os.environ, "DET_DISABLE_PLUGINS": off}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=560)
    assert (ran.returncode, ran.stdout.rstrip().endswith(": ok")) == (0, True), ran.stdout


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is not
        return False


@pytest.mark.usefixtures("core_alone")
@pytest.mark.integration
def test_check_finds_files_that_two_distributions_install(det: Det, install: Install, tmp_path: Path) -> None:
    install("det-over", "")
    other = tmp_path / "det-over" / "other-2.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 2.0\n")
    for info in (other, other.with_name("det_over-1.0.dist-info")):
        (info / "RECORD").write_text(f"{info.name}/METADATA,,\ncommon.py,sha256=x,1\n../../bin/tool,sha256=y,2\n")
    assert det("plugins", "check", "det-over").out.splitlines() == [
        "det-over 1.0 and other 2.0 overwrite each other's files, such as ../../bin/tool (2 in all); "
        f"type: {package_command('uninstall', 'other')}; {package_command('reinstall', 'det-over')}"
    ]
