"""The plugin in docs/observers.md works. It is installed, receives events, and passes the suite."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from det_core.events import EVENTS, ExperimentEvent, TrialEvent
from det_core.testing.observer import ObserverCompliance
from tests.testing.documents import declared_attributes, first_column, require_example, snippets
from tests.testing.installed_examples import Run, install_example

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "observer_plugin"
DOCUMENT = ROOT / "docs" / "observers.md"
CONFIG = "entrypoint: 'true'\nsearcher: {name: single, metric: loss}\n"
(BLOCK,) = snippets(DOCUMENT, "yaml")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a module next to the example's test, with the example installed by pip."""
    return install_example(tmp_path_factory.mktemp("docs"), EXAMPLE, "test_jsonl.py")


@pytest.mark.integration
@pytest.mark.slow
def test_the_observer_passes_the_suite(run: Run) -> None:
    told = run("pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_jsonl.py")
    assert re.search(r"^\d+ passed, 2 skipped in ", told, re.MULTILINE), told  # it has no secrets


@pytest.mark.integration
@pytest.mark.slow
def test_a_config_selects_the_observer(run: Run, tmp_path: Path) -> None:
    assert "observer jsonl" in run("det_core.cli", "plugins", "list")
    assert run("det_core.cli", "plugins", "check", "det-jsonl").endswith("exit code 0")
    assert "metrics_reported" in run("det_core.cli", "plugins", "show", "det-jsonl")
    config = tmp_path / "observed.yaml"
    for block, outcome in (
        (BLOCK, "exit code 0"),
        (BLOCK.replace("directory", "directoy"), "did you mean 'directory'?"),
    ):
        config.write_text(CONFIG + block)
        assert outcome in run("det_core.cli", "config", "check", config)


@pytest.mark.parametrize("language", ["python", "toml"])
def test_the_document_shows_the_example(language: str) -> None:
    others = [code for code in snippets(DOCUMENT, language) if re.match(r"# \w+\.py\n", code)]
    require_example(DOCUMENT, language, EXAMPLE, others=others)


def test_every_attribute_and_event_is_in_a_table() -> None:
    fixtures = {"options", "arrived", "unreachable"}
    tests = {name for name in dir(ObserverCompliance) if name.startswith("test_")}
    declared = declared_attributes(ObserverCompliance)
    assert first_column(DOCUMENT) == declared | fixtures | tests | {event.name for event in EVENTS}


def test_every_field_is_in_the_table() -> None:
    rows = re.findall(r"^\| `(\w+)\.(\w+)` \| `([^`]+)` \|", DOCUMENT.read_text(), re.MULTILINE)
    kinds = {kind.name: kind for kind in EVENTS} | {kind.__name__: kind for kind in (ExperimentEvent, TrialEvent)}
    fields = {(name, *own) for name, kind in kinds.items() for own in kind.__annotations__.items()}
    assert {(kind, field, annotation.replace("\\|", "|")) for kind, field, annotation in rows} == fields


def test_events_have_the_common_fields_that_the_document_describes() -> None:
    assert [kind.name for kind in EVENTS if not issubclass(kind, ExperimentEvent)] == ["checkpoint_deleted"]
    assert [kind.name for kind in EVENTS if issubclass(kind, ExperimentEvent) and not issubclass(kind, TrialEvent)] == [
        "experiment_started", "experiment_finished"
    ]  # fmt: skip
