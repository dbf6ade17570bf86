"""Hints name the command that installs into the environment of the process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from det_core.package_commands import adapt_install_command, package_command

RECEIPT = """[tool]
requirements = [
    { name = "det-core", extras = ["cli", "plot"] },
    { name = "det-compat", specifier = ">=0.1" },
]
entrypoints = [
    { name = "det", install-path = "/bin/det", from = "det-core" },
]
"""
"""As uv 0.9 writes it."""

Environment = Callable[..., Path]


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """Make this process look as if it ran in an environment, and return the environment's directory."""

    def enter(installer: str = "pip", origin: object = None, **files: str) -> Path:
        prefix, info = tmp_path / "my env", tmp_path / "site" / "det_core-9.dist-info"
        programs = prefix / "bin"
        for directory in (programs, info):
            directory.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: det-core\nVersion: 9\n")
        (info / "INSTALLER").write_text(f"{installer}\n")
        if origin:
            (info / "direct_url.json").write_text(json.dumps(origin))
        for name, text in files.items():
            (prefix / name.replace("__", ".").replace("_receipt", "-receipt")).write_text(text)
        (programs / "pip").touch(mode=0o755)
        monkeypatch.syspath_prepend(info.parent)
        monkeypatch.setattr(sys, "prefix", str(prefix))
        monkeypatch.setattr(sys, "executable", str(programs / "python"))
        monkeypatch.setenv("PATH", str(programs))
        monkeypatch.delenv("VIRTUAL_ENV", raising=False)
        return prefix

    return enter


def test_pip_of_this_python_is_enough_if_it_is_first_on_the_path(environment: Environment) -> None:
    environment()
    assert package_command("install", "det-core[plot]", "det-torch>=1") == "pip install 'det-core[plot]' 'det-torch>=1'"
    assert package_command("upgrade", "det-torch") == "pip install -U det-torch"
    assert package_command("reinstall", "det-torch") == "pip install --force-reinstall --no-deps det-torch"
    assert package_command("uninstall", "det-torch") == "pip uninstall det-torch"


def test_python_is_named_if_the_first_pip_is_of_another(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = environment()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert package_command("install", "det-torch") == f"'{prefix}/bin/python' -m pip install det-torch"


def test_uv_names_the_environment_unless_it_is_active(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = environment(installer="uv")
    assert package_command("install", "det-torch") == f"uv pip install --python '{prefix}/bin/python' det-torch"
    monkeypatch.setenv("VIRTUAL_ENV", str(prefix))
    assert package_command("install", "det-torch") == "uv pip install det-torch"
    assert package_command("uninstall", "det-torch") == "uv pip uninstall det-torch"


def test_pipx_injects_into_the_environment_of_the_tool(environment: Environment) -> None:
    environment(installer="uv", pipx_metadata__json="{}")
    assert package_command("install", "det-core[plot]") == "pipx inject 'my env' 'det-core[plot]'"
    assert package_command("upgrade", "det-torch") == "pipx upgrade --include-injected 'my env'"


def test_a_tool_of_uv_keeps_what_it_was_installed_with(environment: Environment) -> None:
    environment(installer="uv", uv_receipt__toml=RECEIPT)
    assert package_command("install", "det-torch") == (
        "uv tool install 'det-core[cli,plot]' --with det-compat --with det-torch"
    )


@pytest.mark.parametrize(("editable", "option"), [(True, "-e "), (False, "")])
def test_a_source_tree_provides_the_distributions_that_it_has(
    environment: Environment, tmp_path: Path, editable: bool, option: str
) -> None:
    tree = tmp_path / "source tree"
    (tree / "plugins" / "torch_distributed").mkdir(parents=True)
    environment(origin={"url": tree.as_uri(), "dir_info": {"editable": editable}})
    directory = f"{tree}/plugins/torch_distributed"
    assert package_command("install", "det-torch-distributed") == f"pip install {option}'{directory}'"
    assert package_command("install", "det-torch-distributed[dev]") == f"pip install {option}'{directory}[dev]'"
    assert package_command("install", "det-elsewhere") == "pip install det-elsewhere"
    assert package_command("install", "det-core[plot]") == "pip install 'det-core[plot]'"


def test_the_hints_of_plugins_are_adapted(environment: Environment) -> None:
    environment(installer="uv", pipx_metadata__json="{}")
    hint = adapt_install_command("pip install torch, then pip install det-torch")
    assert hint == "pipx inject 'my env' torch, then pipx inject 'my env' det-torch"
