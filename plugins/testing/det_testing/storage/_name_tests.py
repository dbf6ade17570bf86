"""Tests of names with special characters or unusual lengths."""

from __future__ import annotations

import unicodedata

import pytest

from det_testing.storage._store_suite import Shelf, StoreSuite

ODD_NAMES = (
    "with space", " leading", "trailing ", "two  spaces",
    "a+b", "a%b", "a%20b", "a b", "a%2Fb", "a%2520b", "%", "100%",
    "#hash", "what?", "a&b", "a=b;c", "at@", "colon:", "back\\slash", "pipe|", "<xml>", "&amp;", "{x}", "$HOME", "`x`",
    "*", "[x]", "~", "-rf", "'single'", '"double"', "tab\there", "comma,", "!", "^",
    ".hidden", "..two", "...", "trailing.", ".dir/.file", "sp ace/pl+us/per%cent",
    unicodedata.normalize("NFC", "Zoë-ångström"), unicodedata.normalize("NFD", "Zoë-ångström"),
    "日本語/チェックポイント", "😀", "\u202eright-to-left", "\u00a0", "Case", "case",
)  # fmt: skip


class StoreNameTests(StoreSuite):
    """Tests that every name is listed exactly as it was stored."""

    def test_odd_names_are_kept_and_apart(self, shelf: Shelf) -> None:
        contents = {name: name.encode() for name in ODD_NAMES}
        shelf.put_all("c", contents)
        assert shelf.get_all("c") == contents
        for half in (ODD_NAMES[::2], ODD_NAMES[1::2]):
            for name in half:
                shelf.storage.delete("c", [name])
                del contents[name]
            assert shelf.storage.list("c").keys() == contents.keys()

    def test_a_line_end_in_a_name_is_kept(self, shelf: Shelf) -> None:
        if not self.newlines:
            pytest.skip("names in this store cannot contain line ends")
        self._is_kept(shelf, "two\nlines\r")

    @pytest.mark.parametrize("letter", ["n", "ü"])
    def test_long_names_are_kept(self, shelf: Shelf, letter: str) -> None:
        part = letter * (self.longest_part // len(letter.encode()))
        path = "/".join([part] * (1 + self.longest_path // self.longest_part)).encode()[: self.longest_path]
        self._is_kept(shelf, part)
        self._is_kept(shelf, path.decode(errors="ignore").rstrip("/"))

    def _is_kept(self, shelf: Shelf, name: str) -> None:
        shelf.put("c", name, name.encode())
        assert shelf.get_all("c") == {name: name.encode()}
        shelf.storage.delete("c", [name])
        assert shelf.storage.list("c") == {}
