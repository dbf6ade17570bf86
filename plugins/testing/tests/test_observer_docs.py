"""The plugin in docs/observers.md works. It is registered, receives events, and passes the suite."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import test_jsonl
from det_testing.observer import ObserverCompliance

from det_core.events import EVENTS, ExperimentEvent, TrialEvent
from plugins.testing.tests.document_parts import declared_attributes, first_column, require_example, snippets

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "observer_plugin"
DOCUMENT = ROOT / "docs" / "observers.md"
CONFIG = "entrypoint: 'true'\nsearcher: {name: single, metric: loss}\n"
(BLOCK,) = snippets(DOCUMENT, "yaml")


@pytest.mark.integration
@pytest.mark.usefixtures("registered")
class TestExample(test_jsonl.TestJsonLines):
    pass


def test_flush_writes_a_line_per_event(tmp_path: Path) -> None:
    test_jsonl.test_flush_writes_a_line_per_event(tmp_path)


@pytest.mark.integration
def test_a_config_selects_the_observer(det: Callable[..., str], tmp_path: Path) -> None:
    assert "observer jsonl" in det("plugins", "list")
    assert det("plugins", "check", "det-jsonl").endswith("exit code 0")
    assert "metrics_reported" in det("plugins", "show", "det-jsonl")
    config = tmp_path / "observed.yaml"
    for block, outcome in (
        (BLOCK, "exit code 0"),
        (BLOCK.replace("directory", "directoy"), "did you mean 'directory'?"),
    ):
        config.write_text(CONFIG + block)
        assert outcome in det("config", "check", config)


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
