"""The examples in docs/storage.md work. The store is registered, selected by a config, and passes the suite."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import importlib_metadata
import pytest
import test_gzip
from det_testing.storage import StorageCompliance

from det_core import storage as det_storage
from det_core.interfaces.storage import StorageManager
from plugins.testing.tests.document_parts import declared_attributes, first_column, snippets
from plugins.testing.tests.plugin_sites import register_example, run_module
from tests.storage.memory import MemoryBucket

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "storage_plugin"
DOCUMENT = ROOT / "docs" / "storage.md"
STORE, BUCKET, SUITE = snippets(DOCUMENT, "python")
(PYPROJECT,) = snippets(DOCUMENT, "toml")
(CONFIG,) = snippets(DOCUMENT, "yaml")


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a directory with the distribution that the document shows, whose module can be imported."""
    directory = tmp_path_factory.mktemp("document")
    for name, content in {"det_rows.py": STORE, "pyproject.toml": PYPROJECT}.items():
        (directory / name).write_text(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(directory)
        yield directory


@pytest.fixture(scope="module")
def entry_points(document: Path) -> importlib_metadata.EntryPoints:
    register_example(document, document)
    return importlib_metadata.entry_points(group="det")


@pytest.mark.integration
def test_the_store_passes_the_suite(document: Path) -> None:
    (document / "test_rows.py").write_text(SUITE)
    told = run_module(document, "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_rows.py")
    assert re.search(r"^\d+ passed, 6 skipped in ", told, re.MULTILINE), told  # `broken`, `damage`, `local_path`


@pytest.mark.integration
class TestExample(test_gzip.TestGzip):
    pass


@pytest.mark.integration
def test_a_config_selects_the_store_and_its_options_are_checked(det: Callable[..., str], tmp_path: Path) -> None:
    assert "det-rows" in det("plugins", "list")
    assert det("plugins", "check", "det-rows").endswith("exit code 0")
    experiment = "entrypoint: m:T\nsearcher: {name: single, metric: loss, max_length: {batches: 1}}\n" + CONFIG
    config = tmp_path / "const.yaml"
    config.write_text(experiment)
    assert det("config", "check", config).endswith("exit code 0")
    config.write_text(experiment.replace("  path:", "  paht:"))
    assert "const.yaml:3: checkpoint_storage.path" in det("config", "check", config)


def test_the_target_of_the_document_opens_a_bucket(tmp_path: Path) -> None:
    config = SimpleNamespace(prefix="some/prefix")
    names = {"BucketConfig": object, "ObjectStorage": det_storage.ObjectStorage, "Bucket": lambda _: MemoryBucket()}
    exec(BUCKET, names)
    det_storage.check_storage(names["open_bucket"](config))  # type: ignore[operator]


def test_a_relative_path_refers_to_the_directory_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(STORE, "det_rows.py", "exec", dont_inherit=True), names)
    assert names["RowConfig"](path="checkpoints.db").path == tmp_path / "checkpoints.db"


def test_the_table_of_optional_methods_is_complete() -> None:
    rows = re.findall(r"^\| `(\w+\(.*?)` \| ", DOCUMENT.read_text(), re.MULTILINE)
    methods = {name: method for name, method in vars(StorageManager).items() if inspect.isfunction(method)}
    optional = {name: method for name, method in methods.items() if name not in StorageManager.__abstractmethods__}
    signatures = {f"{name}{inspect.signature(method)}" for name, method in optional.items()}
    assert {row.replace("\\|", "|") for row in rows} == {re.sub(r"'|self(, )?", "", text) for text in signatures}


def test_every_attribute_is_in_the_table() -> None:
    assert first_column(DOCUMENT) == declared_attributes(StorageCompliance)
