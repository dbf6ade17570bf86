"""Broken YAML, unreadable files, and scalars that YAML parsers read in different ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_core.config import load_config, parse_config
from det_core.config._document import MAX_BYTES
from det_core.config._yaml import dump_yaml, parse_yaml
from det_core.errors import ConfigError

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
)
MERGE_BOMB = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 9)
)

# text, line, words of the message
BROKEN = [
    ("", 1, "it is empty; expected a mapping"),
    ("# nothing\n", 1, "it is empty"),
    ("- a\n", 1, "it is a list; expected a mapping"),
    ("hello", 1, "it is a str; expected a mapping"),
    (
        "a: 1\nb: [1,\nc: 2\n",
        4,
        "expected ',' or ']', but got '<stream end>' while parsing a flow sequence from line 2",
    ),
    ("a: 1\n\tb: 2\n", 2, "not valid YAML"),
    ("a: *nowhere", 1, "found undefined alias"),
    ("a: 1\n---\nb: 2\n", 2, "not valid YAML: but found another document"),
    ("a: 1\nb: \x07\n", 2, "special characters are not allowed"),
    ("a: !!python/object/apply:os.system [ls]", 1, "the tag '!!python/object/apply:os.system' is not allowed"),
    ("a: 1\nb: !!set {x}", 2, "the tag '!!set' is not allowed"),
    ("b: !!binary aGVsbG8=", 1, "the tag '!!binary' is not allowed"),
    ("a: !!int x", 1, "cannot be read as YAML int"),
    ("a: 1\nb: !!int ''", 2, "cannot be read as YAML int"),
    ("b: !!float ''", 1, "cannot be read as YAML float"),
    ("b: !!bool ''", 1, "cannot be read as YAML bool"),
    ("b: !!int '-'", 1, "cannot be read as YAML int"),
    ("b: !!int '0x'", 1, "cannot be read as YAML int"),
    ("b: !!int '1:'", 1, "cannot be read as YAML int"),
    ("b: " + "7" * 5000, 1, "cannot be read as YAML int"),
    ("a: 1\nb: 16:9", 2, "16:9 is the number 969 in YAML 1.1"),
    ("b: [-1:30]", 1, "-1:30 is the number -90"),
    ("b: 190:20:30.15", 1, "190:20:30.15 is the number 685230.15"),
    ("b: 010", 1, "010 is the number 8 in YAML 1.1"),
    ("b: {c: -007}", 1, "-007 is the number -7"),
    ("b: 00", 1, "put it in quotes if it is text"),
    ("b: !!int 010", 1, "010 is the number 8"),
    ("a: 1\n? [1, 2]\n: 3", 2, "a key is a list or a mapping"),
    ("a: 1\n<<: 3", 1, "<< merges a value that is not a mapping"),
    ("a: &a [*a]", 1, "nest"),
    ("a: &a {<<: *a}", 1, "nest"),
    ("a: " + "[" * 200 + "]" * 200, 1, "nesting make the config too big"),
    ("a: " + "[" * 600, None, "nested too deeply"),
    (BOMB, None, "too big"),
    (MERGE_BOMB, None, "too big"),
    ("a" * (MAX_BYTES + 1), None, "characters; expected an experiment config"),
]


def test_unambiguous_numbers_are_accepted() -> None:
    """Only numbers that YAML 1.1 reads as octal or in base 60 are refused."""
    text = "[0, -1, 1_000, 0x1f, 0b11, 0.5, 00.5, 1e-3, '16:9', \"010\", 08, -0190, '08', 1:2:z, 12:30:61]"
    expected = [0, -1, 1000, 31, 3, 0.5, 0.5, 1e-3, "16:9", "010", 8, -190, "08", "1:2:z", "12:30:61"]
    assert parse_yaml(text, "f").value == expected


def test_dumped_texts_are_read_as_texts() -> None:
    texts = ["08", "-09", "1e-3", "1_000", "010", "16:9", "2026-01-02", "yes", "null", "é", ""]
    assert parse_yaml(dump_yaml(texts), "f").value == texts


@pytest.mark.parametrize(("text", "line", "words"), BROKEN, ids=[words for _, _, words in BROKEN])
def test_broken_yaml_is_reported_with_its_line(text: str, line: int | None, words: str) -> None:
    """Each error has the line of the problem and says what is wrong."""
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    [problem] = caught.value.problems
    assert words in problem.message
    assert line is None or problem.line == line


def test_a_duplicate_key_names_both_lines() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config("searcher: {name: single, metric: a, max_length: 1}\nname: a\nlabels: []\nname: b\n")
    assert str(caught.value) == "<config>:4: name: the key is given twice, first on line 2; remove one"


# content of the file or None for a missing file, line, words of the message
FILES = [
    (None, None, "no such file"),
    (b"a: 1\nname: \xff\xfe\n", 2, "not UTF-8"),
    (b"a" * (MAX_BYTES + 1), None, f"more than {MAX_BYTES} bytes"),
]


@pytest.mark.parametrize(("content", "line", "words"), FILES)
def test_an_unreadable_file_is_reported(tmp_path: Path, content: bytes | None, line: int | None, words: str) -> None:
    path = tmp_path / "const.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    [problem] = caught.value.problems
    assert (problem.file, problem.line) == (str(path), line)
    assert words in problem.message


def test_a_directory_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="this is a directory"):
        load_config(tmp_path)


# YAML of a scalar and its value, which is the same in JSON and in Determined AI
SCALARS = [
    ("1e-3", 0.001),
    ("1.5e4", 15000.0),
    ("-2E+2", -200.0),
    ("3.0", 3.0),
    ("1e", "1e"),
    ("0x10", 16),
    ("2020-01-01", "2020-01-01"),
    ("yes", True),
    ("~", None),
    ("'5'", "5"),
]


@pytest.mark.parametrize(("text", "value"), SCALARS)
def test_scalars_are_read_as_in_json(text: str, value: object) -> None:
    config = parse_config(f"searcher: {{name: single, metric: a, max_length: 1}}\ndata: {{x: {text}}}")
    assert config.data == {"x": value}
    assert type(config.data["x"]) is type(value)


def test_merge_keys_aliases_and_numeric_keys_are_resolved() -> None:
    text = """
    data:
      base: &base {a: 1, b: {c: 2}}
      other: &other {a: 5, d: 6}
      one: {<<: *base, a: 3}
      two: {<<: [*base, *other]}
      1: *base
    searcher: {name: single, metric: a, max_length: 1}
    """
    data = parse_config(text).data
    assert data["one"] == {"a": 3, "b": {"c": 2}}
    assert data["two"] == {"a": 1, "b": {"c": 2}, "d": 6}
    assert data["1"] == {"a": 1, "b": {"c": 2}}


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "const.yaml"
    path.write_bytes(b"\xef\xbb\xbfsearcher: {name: single, metric: a, max_length: 1}\n")
    assert load_config(path).searcher.metric == "a"
