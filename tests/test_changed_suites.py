"""Suites that ``make check`` runs after a change, which ``tools/changed_suites.py`` chooses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from changed_suites import affected_suites, changed_files, read_imports, read_tests

ROOT = Path(__file__).resolve().parent.parent

CORE = ["cli", "comm", "core", "runner", "tracking"]
IMPORTS = {
    "core": set(),
    "net": {"core"},
    "net_distributed": {"net", "core"},
    "both": {"net_distributed", "core"},
    "bucket": {"core"},
}
TESTS = {"net": 'EXAMPLES / "iris_net"', "bucket": 'from tests.comm.job import free_port\nPAGE = "buckets.md"'}


@pytest.mark.parametrize(
    ("files", "suites"),
    [
        (["plugins/net/det_net/data.py"], ["net", "net_distributed", "both"]),
        (["plugins/net_distributed/pyproject.toml"], ["net_distributed", "both"]),
        (["plugins/net/tests/test_data.py", "tests/cli/test_run.py"], ["cli", "net"]),
        (["tests/comm/job.py"], [*CORE, "bucket"]),
        (["tests/comm/other_job.py"], CORE),
        (["docs/start.md", "README.md", "tests/test_cycles.py"], ["core"]),
        (["docs/guides/buckets.md"], ["core", "bucket"]),
        (["examples/iris_net/data/iris.csv"], ["core", "net"]),
        (["det_core/home.py"], [*CORE, "bucket", "net", "net_distributed", "both"]),
        (["plugins/testing/det_testing/proxy.py"], [*CORE, "bucket", "net", "net_distributed", "both"]),
        (["conftest.py"], [*CORE, "bucket", "net", "net_distributed", "both"]),
        (["plugins/removed/det_removed/x.py"], [*CORE, "bucket", "net", "net_distributed", "both"]),
        ([".github/workflows/test.yml"], []),
        ([], []),
    ],
)
def test_a_change_concerns_its_suite_and_those_that_import_it(files: list[str], suites: list[str]) -> None:
    assert affected_suites(files, IMPORTS, TESTS) == suites


@pytest.mark.integration  # it reads all distributions
def test_imports_are_read_from_packages_and_their_functions() -> None:
    imports = read_imports(ROOT)
    assert imports["deepspeed"] == {"torch", "core"}
    assert "torch" in imports["compat"], "det-compat imports det-torch in functions"
    assert imports["core"] == set()


def test_tests_are_read_with_their_helpers() -> None:
    tests = read_tests(ROOT)
    assert "tests.comm.job" in tests["mlflow"]
    assert "iris_keras" in tests["keras"]


def test_changed_files_are_those_since_the_common_ancestor(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    for name in ("old", "committed", "edited", "moved"):
        (tmp_path / name).write_text("")
    git("add", "old", "edited", "moved")
    git("commit", "-qm", "first")
    git("branch", "base")
    git("add", "committed")
    git("commit", "-qm", "second")
    (tmp_path / "edited").write_text("new")
    (tmp_path / "unknown\u00e9 one").write_text("")
    git("mv", "moved", "to")
    assert sorted(changed_files(tmp_path, "base")) == ["committed", "edited", "moved", "to", "unknown\u00e9 one"]
    with pytest.raises(SystemExit, match="make check SINCE=main"):
        changed_files(tmp_path, "nowhere")
