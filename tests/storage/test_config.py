"""Directories of `directory` and `shared_fs`, and paths that would lead outside."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest
from det_testing import campaign_seeds
from pydantic import ValidationError

from det_core.config import load_config
from det_core.errors import ConfigError, StorageError
from det_core.storage.config import DirectoryConfig, SharedFSConfig
from det_core.storage.directory import DirectoryStorage

SEEDS = campaign_seeds(few=20, many=2000)
PIECES = (
    "a", "b c", "é", "e\u0301", "日本", "😀", "%2e%2e", "..%2f", "..\\up", "a\\b", "\uff0e\uff0e", "...",
    "..a", " ..", ".. ", "~",
    "$HOME", "-rf", "to-inside", "two\nlines", "x" * 255,
)  # fmt: skip
WAYS_OUT = ("..", "to-outside", "to-file-system", "to-parent")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Symbolic link to a mounted directory that contains links, with another directory beside it."""
    (tmp_path / "mounted" / "inside").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    links = {"to-inside": "inside", "to-outside": "../outside", "to-file-system": "/", "to-parent": ".."}
    for name, target in links.items():
        (tmp_path / "mounted" / name).symlink_to(target)
    (tmp_path / "host").symlink_to("mounted")
    return tmp_path / "host"


def storage_path(seed: int, host: Path) -> str:
    chance = random.Random(seed)
    pieces = chance.choices([*PIECES, ".", "", *WAYS_OUT], k=chance.randint(1, 5))
    return chance.choice(["", "", f"{host}/", f"{host.resolve()}/", "/"]) + "/".join(pieces)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", SEEDS)
def test_an_accepted_storage_path_stays_inside_host_path(seed: int, host: Path, tmp_path: Path) -> None:
    path = storage_path(seed, host)
    source = tmp_path / "source"
    source.touch()
    try:
        config = SharedFSConfig(host_path=host, storage_path=Path(path))
    except ValidationError as error:
        assert path.startswith("/") or any(way in path.split("/") for way in WAYS_OUT), path
        assert "must stay inside host_path" in str(error)  # noqa: PT017
        return
    DirectoryStorage(config).put("mark", "mark", source)
    found = [Path(where, "mark") for where, _, names in os.walk(tmp_path) if "mark" in names]
    assert [file.relative_to(host.resolve()).parts[-2:] for file in found] == [("mark", "mark")]
    assert DirectoryStorage(config).list("mark") == {"mark": 0}


@pytest.mark.parametrize("piece", PIECES)
def test_unusual_names_are_taken_literally(piece: str, host: Path) -> None:
    config = SharedFSConfig(host_path=host, storage_path=Path("p", piece, "q"))
    assert config.base == host / "p" / piece / "q"


@pytest.mark.parametrize(
    ("path", "base"),
    [
        (None, "."), ("", "."), (".", "."), ("a/./b/", "a/b"), ("a//b", "a/b"), ("a/../b", "b"),
        ("to-inside", "inside"), ("to-inside/../b", "b"), ("{host}", "."),
        ("{host}/a", "a"), ("{real}/a", "a"), ("{host}/../host/a", "a"),
    ],
)  # fmt: skip
def test_paths_inside_host_path_are_accepted(path: str | None, base: str, host: Path) -> None:
    given = None if path is None else path.format(host=host, real=host.resolve())
    config = SharedFSConfig.model_validate({"host_path": str(host), "storage_path": given})
    assert config.base == host / base


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [
        ("..", "."), ("../x", "x"), ("a/../../x", "x"), ("to-outside", "outside"), ("to-outside/a", "outside/a"),
        ("to-parent/x", "x"), ("to-inside/../../x", "x"), ("/etc", "/etc"),
        ("{host}-2/a", "host-2/a"), ("{real}2", "mounted2"),
    ],
)  # fmt: skip
def test_paths_outside_host_path_are_rejected_with_their_target(
    path: str, leads_to: str, host: Path, tmp_path: Path
) -> None:
    given = path.format(host=host, real=host.resolve())
    message = f"storage_path {given!r} leads to {str(tmp_path / leads_to)!r}, but must stay inside host_path"
    with pytest.raises(ValidationError, match=re.escape(f"{message} {str(host)!r}; write a path relative")):
        SharedFSConfig(host_path=host, storage_path=Path(given))


@pytest.mark.parametrize(
    ("keys", "inside"),
    [
        ({"checkpoint_path": "a"}, "a"),
        ({"checkpoint_path": "a", "tensorboard_path": "b"}, "b"),
        ({"checkpoint_path": "a", "tensorboard_path": "b", "storage_path": "c"}, "c"),
        ({"checkpoint_path": None, "storage_path": None}, ""),
    ],
)
def test_old_names_of_storage_path_are_read(keys: dict[str, str | None], inside: str, host: Path) -> None:
    assert SharedFSConfig.model_validate({"host_path": str(host), **keys}).base == host / inside
    with pytest.raises(ValidationError, match="must stay inside host_path"):
        SharedFSConfig.model_validate({"host_path": str(host), "checkpoint_path": "../x"})


def test_a_link_that_later_leads_outside_is_found_when_the_store_is_opened(host: Path, tmp_path: Path) -> None:
    config = SharedFSConfig(host_path=host, storage_path=Path("to-inside"))
    (host / "to-inside").unlink()
    (host / "to-inside").symlink_to(tmp_path / "outside")
    with pytest.raises(ValueError, match="must stay inside"):
        DirectoryStorage(config)


def test_a_link_cycle_raises_an_error_when_it_is_used(host: Path, tmp_path: Path) -> None:
    (host / "loop").symlink_to("loop")
    (tmp_path / "source").touch()
    store = DirectoryStorage(SharedFSConfig(host_path=host, storage_path=Path("loop/a")))
    with pytest.raises(
        StorageError, match=r"cannot write checkpoints under .*loop/a: Too many levels of symbolic links"
    ):
        store.put("c", "x", tmp_path / "source")


@pytest.mark.parametrize("key", ["host_path", "storage_path"])
def test_zero_bytes_are_rejected(key: str) -> None:
    with pytest.raises(ValidationError, match="contains a zero byte"):
        SharedFSConfig.model_validate({"host_path": "/mnt/x", key: "/mnt/x/\0"})
    with pytest.raises(ValidationError, match="contains a zero byte"):
        DirectoryConfig(container_path=Path("\0"))


def test_container_keys_are_ignored() -> None:
    plain = {"host_path": "/mnt/x", "storage_path": "a"}
    old = SharedFSConfig.model_validate({**plain, "container_path": "/determined_shared_fs", "propagation": "shared"})
    assert old.base == SharedFSConfig.model_validate(plain).base == Path("/mnt/x/a")


def test_home_directories_are_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert DirectoryConfig(container_path=Path("~/a")).base == Path("/home/me/a")
    assert DirectoryConfig(container_path=Path("a/~")).base == Path.cwd() / "a" / "~"
    with pytest.raises(ValidationError, match="refers to an unknown home directory; write the absolute path"):
        DirectoryConfig(container_path=Path("~nobody-of-this-name/a"))


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("type: shared_fs\n  host_path: /mnt/x\n  storage_path: ../y", "leads to '/mnt/y'"),
        ("type: shared_fs\n  host_path: x", r"host_path 'x' must be absolute, for example"),
        ('type: directory\n  container_path: "\\0"', "contains a zero byte"),
        ("type: directory\n  container_path: ~nobody-of-this-name", "refers to an unknown home directory"),
    ],
)
def test_config_errors_name_the_line(block: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "const.yaml"
    path.write_text(
        "entrypoint: m:T\nsearcher: {name: single, metric: loss, max_length: {batches: 1}}\n"
        f"checkpoint_storage:\n  {block}\n"
    )
    with pytest.raises(ConfigError, match=rf"const\.yaml:\d+: checkpoint_storage.*{message}"):
        load_config(path)
