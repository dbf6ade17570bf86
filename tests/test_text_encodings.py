"""Calls that use the encoding of the locale, which ``tools/text_encodings.py`` finds."""

from __future__ import annotations

from pathlib import Path

import pytest
import text_encodings

CALLS = [
    "open('a')",
    "open('a', 'w')",
    "path.open()",
    "path.open('a')",
    "path.read_text()",
    "path.read_text(errors='replace')",
    "path.write_text(text)",
    "os.fdopen(1, mode='w')",
    "NamedTemporaryFile('w+')",
    "subprocess.run(words, text=True)",
    "subprocess.Popen(words, universal_newlines=True)",
]
OTHERS = [
    "open('a', 'rb')",
    "path.open('xb')",
    "path.open(mode)",
    "path.read_text('utf-8')",
    "path.write_text(text, 'utf-8')",
    "path.read_bytes()",
    "os.fdopen(1, 'wb')",
    "NamedTemporaryFile()",
    "subprocess.run(words)",
    "tarfile.open(path, 'r:gz')",
    "run(text=text)",
    "path.open(**options)",
]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_without_an_encoding_is_printed(call: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.py").write_text(f"x = {call}\n")
    assert text_encodings.main([str(tmp_path)]) == 1
    assert f"a.py:1: {call.partition('(')[0]}() has no encoding" in capsys.readouterr().out


def test_other_calls_are_fine(tmp_path: Path) -> None:
    code = "".join(f"x = {call}\n" for call in OTHERS)
    specified = "".join(f"x = {call.removesuffix(')')}, encoding='utf-8')\n".replace("(,", "(") for call in CALLS)
    (tmp_path / "a.py").write_text(f"{code}{specified}stream.open()\nlater(lambda: gate.open())\n")
    assert text_encodings.main([str(tmp_path)]) == 0
