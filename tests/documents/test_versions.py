"""The page of supported versions says what the distributions require."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from .page_runner import tomllib

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "versions.md").read_text()
ROWS = dict(re.findall(r"^\| (det-[\w-]+) \| (.*) \|$", PAGE, re.MULTILINE))
PROJECTS = [ROOT / "pyproject.toml", *sorted((ROOT / "plugins").glob("*/pyproject.toml"))]
NAMED = (
    "torch",
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-estimator",
    "deepspeed",
    "jax",
    "boto3",
    "google-cloud-storage",
    "optuna",
    "ray",
    "azure-storage-blob",
    "fsspec",
    "trackio",
    "transformers",
    "accelerate",
    "paramiko",
    "wandb",
)


@pytest.mark.parametrize("path", PROJECTS, ids=lambda path: path.parent.name)
def test_the_page_names_the_required_versions(path: Path) -> None:
    project: dict[str, Any] = tomllib.loads(path.read_text())["project"]
    extras = project.get("optional-dependencies", {})
    requirements = [*project.get("dependencies", ()), *extras.get("cpu", ()), *extras.get("gpu", ())]
    named = {each for each in requirements if re.match(r"[\w-]+", each)[0] in NAMED}  # type: ignore[index]
    python, libraries = ROWS[project["name"]].split(" | ")
    assert python == f"`{project['requires-python']}`"
    assert set(re.findall(r"`([\w-]+(?:\[\w+\])?[<>=][^`]*)`", libraries)) == named


def test_there_is_a_row_for_each_distribution() -> None:
    assert len(ROWS) == len(PROJECTS)
