"""Metadata of all distributions, their releases, and the workflows that test and publish them."""

from __future__ import annotations

import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

from det_core.plugins._known_distributions import DISTRIBUTIONS

ROOT = Path(__file__).resolve().parent.parent
DIRECTORIES = [ROOT, *sorted(project.parent for project in ROOT.glob("plugins/*/pyproject.toml"))]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
COMMON_CLASSIFIERS = {
    "Development Status :: 4 - Beta",
    "Intended Audience :: Developers",
    "Intended Audience :: Science/Research",
    "Operating System :: POSIX :: Linux",
    "Programming Language :: Python :: 3 :: Only",
    "Topic :: Scientific/Engineering :: Artificial Intelligence",
    "Typing :: Typed",
}
PYTHONS = {
    ">=3.10": ["3.10", "3.11", "3.12", "3.13"],
    "<3.12,>=3.10": ["3.10", "3.11"],
}
"""Versions of Python by ``requires-python``."""
RELEASE = runpy.run_path(str(ROOT / "tools" / "release.py"))


@pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda directory: directory.name)
class TestMetadata:
    def test_all_distributions_say_the_same_about_the_same(self, directory: Path) -> None:
        metadata = ProjectMetadata(str(directory), PluginManager())
        core = metadata.core
        assert metadata.build.requires == ["hatchling>=1.26"]
        assert re.fullmatch(r"[A-Z`][^\n]{20,120}\.", core.description)
        assert core.license_expression == "Apache-2.0"
        assert core.license_files == ["LICENSE"]
        assert core.readme_path == "README.md"
        assert {"deep learning", "training"} <= set(core.keywords)
        pythons = {f"Programming Language :: Python :: {version}" for version in PYTHONS[core.requires_python]}
        assert set(core.classifiers) == COMMON_CLASSIFIERS | pythons
        assert core.urls.keys() == ProjectMetadata(str(ROOT), PluginManager()).core.urls.keys()

    def test_the_files_that_are_built_exist_and_are_typed(self, directory: Path) -> None:
        targets = ProjectMetadata(str(directory), PluginManager()).hatch.build_targets
        packages = targets["wheel"]["packages"]
        assert targets["sdist"]["include"] == [
            f"/{name}" for name in (*packages, "CHANGELOG.md", "LICENSE", "README.md")
        ]
        assert all((directory / package / "py.typed").exists() for package in packages)
        assert (directory / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()

    def test_the_readme_of_the_repository_names_it(self, directory: Path) -> None:
        name = ProjectMetadata(str(directory), PluginManager()).core.name
        heading = name if directory != ROOT else "det"
        assert (directory / "README.md").read_text().startswith(f"# {heading}\n")
        assert (directory / "CHANGELOG.md").read_text().startswith(f"# Changelog of {name}\n")
        assert f"| `{name}` |" in (ROOT / "README.md").read_text()


def imports_of_tests(directory: Path) -> set[str]:
    """Return the distributions of det that the tests of another one import, by the names of their packages."""
    code = "\n".join(file.read_text() for file in (directory / "tests").rglob("*.py"))
    return set(re.findall(r"^\s*(?:from|import) (det_\w+)", code, re.MULTILINE))


@pytest.mark.integration
@pytest.mark.parametrize("directory", DIRECTORIES[1:], ids=lambda directory: directory.name)
def test_tests_import_no_distribution_that_requires_theirs(directory: Path) -> None:
    """Whoever changes a library tests it without its users. Only those of det-core use one, det-testing."""
    this, *others = (ProjectMetadata(str(each), PluginManager()).core for each in (directory, *DIRECTORIES))
    users = {
        one.name.replace("-", "_")
        for one in others
        if any(re.match(rf"{this.name}(?![\w-])", requirement) for requirement in one.dependencies)
    }
    assert users & imports_of_tests(directory) == set()


def test_extras_for_development_have_the_compliance_suites_that_tests_use() -> None:
    users = {directory for directory in DIRECTORIES[1:] if "det_testing" in imports_of_tests(directory)}
    for directory in users - {ROOT / "plugins" / "testing"}:
        core = ProjectMetadata(str(directory), PluginManager()).core
        extra = "testing" if directory.name == "jax" else "dev"  # the tests of det-jax have an environment of their own
        requirements = core.optional_dependencies[extra]
        assert any(re.match(r"det-testing\b|[\w-]+\[.*testing", one) for one in requirements), core.name


def test_hints_name_distributions_that_exist() -> None:
    named = {name for owners in DISTRIBUTIONS.values() for name in owners.values()}
    assert named < {ProjectMetadata(str(directory), PluginManager()).core.name for directory in DIRECTORIES}


class TestRelease:
    @pytest.fixture(autouse=True)
    def _copy(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Work on a copy of the files that a release changes."""
        for directory in DIRECTORIES:
            project = ProjectMetadata(str(directory), PluginManager())
            for file in ("pyproject.toml", "CHANGELOG.md", project.hatch.version.config["path"]):
                copy = tmp_path / directory.relative_to(ROOT) / file
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(directory / file, copy)
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "page.md").write_text("`det-core>=0.1,<0.2` and `det-elsewhere>=0.1,<0.2`\n")
        monkeypatch.chdir(tmp_path)

    def test_one_command_sets_the_version_of_all(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert release("check") == 0
        assert release("set", "99.4.0") == 0
        assert release("check") == 0
        assert '__version__ = "99.4.0"\n' in Path("plugins/torch/det_torch/__init__.py").read_text()
        assert '"det-torch>=99.4,<100"' in Path("plugins/deepspeed/pyproject.toml").read_text()
        assert Path("docs/page.md").read_text() == "`det-core>=99.4,<100` and `det-elsewhere>=0.1,<0.2`\n"
        headings = re.findall("^## .*", Path("plugins/torch/CHANGELOG.md").read_text(), re.MULTILINE)
        assert re.fullmatch(r"## 99\.4\.0 \(20\d\d-\d\d-\d\d\)", headings[0])
        assert "problems\n" in capsys.readouterr().out

    def test_a_release_without_changes_says_so(self) -> None:
        assert release("set", "99.4.0") == release("set", "99.4.1") == 0
        changelog = Path("plugins/torch/CHANGELOG.md").read_text()
        assert re.search(r"## 99\.4\.1 \(.*\)\n\n- No changes\. .*\n\n## 99\.4\.0 \(", changelog)

    def test_a_tag_must_be_the_version_with_dated_changelogs(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert release("check", "v99.4.0") == 1
        assert "plugins/torch/CHANGELOG.md: the first section is" in capsys.readouterr().out
        release("set", "99.4.0")
        for project in Path().rglob("pyproject.toml"):
            project.write_text(project.read_text() + '\n[project.urls]\nHomepage = "https://det.example"\n')
        assert release("check", "v99.4.0") == 0
        assert release("check", "v99.4.1") == 1
        assert "expected v99.4.0" in capsys.readouterr().out

    @pytest.mark.parametrize("requirement", ["det-torch==0.1.0", "det-torch>=0.1", "det-torch>=0.0,<0.1"])
    def test_a_range_that_is_not_that_of_the_version_is_reported(
        self, requirement: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        project = Path("plugins/deepspeed/pyproject.toml")
        project.write_text(re.sub(r"det-torch>=[0-9.]+,<[0-9.]+", requirement, project.read_text()))
        assert release("check") == 1
        assert f"{project}: {requirement}: expected the range" in capsys.readouterr().out

    def test_a_distribution_that_was_left_behind_is_reported(self, capsys: pytest.CaptureFixture[str]) -> None:
        file = Path("plugins/torch/det_torch/__init__.py")
        file.write_text('__version__ = "0.0.9"\n')
        assert release("check") == 1
        assert f"{file}: the version is 0.0.9, expected" in capsys.readouterr().out

    @pytest.mark.parametrize("version", ["0.0.1", "1.2", "1.2.3rc1", "v1.2.3"])
    def test_a_version_that_is_older_or_not_final_is_refused(
        self, version: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert release("set", version) == 1
        assert "expected VERSION as X.Y.Z and not below" in capsys.readouterr().err


def release(*arguments: str) -> int:
    return int(RELEASE["main"](arguments))


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
class TestWorkflows:
    def test_everything_that_they_run_can_be_run_here(self, file: Path) -> None:
        """Each step is a target of the Makefile, so that nothing happens in CI only."""
        targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        for job in jobs(file):
            choices = job.get("strategy", {}).get("matrix", {}).get("target", [""])
            commands = [step["run"] for step in job.get("steps", []) if "run" in step]
            for command in (each.replace("${{ matrix.target }}", choice) for each in commands for choice in choices):
                program, target = command.split()[:2]
                assert program == "git" or (program == "make" and target in targets), command

    def test_they_have_few_rights_and_pinned_actions(self, file: Path) -> None:
        assert workflow(file)["permissions"] in ({}, {"contents": "read"})
        granted = [job["permissions"] for job in jobs(file) if "permissions" in job]
        assert all(each in ({"contents": "read"}, {"id-token": "write"}) for each in granted)
        actions = [step["uses"] for job in jobs(file) for step in job.get("steps", []) if "uses" in step]
        assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action) for action in actions)
        assert all("timeout-minutes" in job or "uses" in job for job in jobs(file))


def workflow(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(file.read_text())
    return content


def jobs(file: Path) -> list[dict[str, Any]]:
    return list(workflow(file)["jobs"].values())
