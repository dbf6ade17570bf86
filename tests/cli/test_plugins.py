"""The ``det plugins`` commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Det, Install, command_plugin


def test_list_shows_distributions_and_their_plugins(det: Det) -> None:
    out = det("plugins", "list").out
    assert out.splitlines()[0].split() == ["DISTRIBUTION", "VERSION", "STATUS", "OFFERS"]
    assert "storage directory, shared_fs" in out
    core = next(one for one in det("plugins", "list", "--json").json if one["name"] == "det-core")
    assert {"kind": "launcher", "name": "local"}.items() <= next(
        one.items() for one in core["provides"] if one["kind"] == "launcher"
    )


def test_show_prints_one_distribution(det: Det) -> None:
    out = det("plugins", "show", "det_core").out
    assert "det_core.storage.directory:DirectoryStorage" in out
    assert det("plugins", "show", "Det.Core", "--json").json["status"] == "ok"


@pytest.mark.usefixtures("core_alone")
def test_check_passes_without_problems(det: Det) -> None:
    result = det("plugins", "check")
    assert (result.code, result.out.rstrip().endswith(": ok")) == (0, True)
    assert det("plugins", "check", "--json").json == {"ok": True, "problems": []}


@pytest.mark.usefixtures("core_alone")
@pytest.mark.integration
def test_check_finds_all_problems(det: Det, install: Install) -> None:
    install("det-raises", "raise ImportError('no cuda')")
    install("det-old", command_plugin("name='old', target='os:path', api=0"))
    install(
        "det-lazy",
        command_plugin("name='lazy', target='det_lazy:gone', config_model='det_lazy:Gone', install='pip install x'"),
    )
    install("det-clash", command_plugin("name='run', target='os:getcwd'"))
    install("det-odd", command_plugin("name='odd', target='os:sep'"))
    result = det("plugins", "check")
    assert result.code == 1
    problems = result.out.splitlines()
    assert len(problems) == 6
    for words in (
        ("det-raises 1.0", "broken", "no cuda"),
        ("det-old 1.0", "incompatible", "api 0"),
        ("det-lazy 1.0", "implementation", "det_lazy:gone", "pip install x"),
        ("det-lazy 1.0", "config model", "det_lazy:Gone"),
        ("det-odd 1.0", "implementation", "os:sep: it is '/'; expected a function"),
        ("'run'", "det-core", "det-clash 1.0"),
    ):
        assert any(all(word in problem for word in words) for problem in problems), words
    assert det("plugins", "check", "--json").json["problems"] == problems
    assert "no cuda" in det("plugins", "list").out
    assert "no cuda" in det("plugins", "show", "det-raises").out


@pytest.mark.usefixtures("core_alone")
def test_check_finds_files_that_two_distributions_install(det: Det, install: Install, tmp_path: Path) -> None:
    install("det-over", "")
    other = tmp_path / "det-over" / "other-2.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 2.0\n")
    for info in (other, other.with_name("det_over-1.0.dist-info")):
        (info / "RECORD").write_text(f"{info.name}/METADATA,,\ncommon.py,sha256=x,1\n../../bin/tool,sha256=y,2\n")
    assert det("plugins", "check").out.splitlines() == [
        "det-over 1.0 and other 2.0 overwrite each other's files, such as ../../bin/tool (2 in all); "
        "type: pip uninstall other; pip install --force-reinstall --no-deps det-over"
    ]
