"""Addresses of servers in config blocks."""

from __future__ import annotations

import pytest

from det_core.interfaces.addresses import check_address


@pytest.mark.parametrize(
    "address", ["https://example.com", "http://127.0.0.1:5000", "http://[::1]:80", "https://example.com/a/b"]
)
def test_addresses_of_servers_are_accepted_without_slashes_at_their_ends(address: str) -> None:
    assert check_address(f"{address}/", "token") == address


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("https://hunter2@example.com", "credentials as token"),
        ("https://:hunter2@example.com", "credentials as token"),
        ("https://ada:hunter2/x@example.com", "credentials as token"),
        ("https://example.com?sig=hunter2", "credentials as token"),
        ("https://example.com#sig=hunter2", "credentials as token"),
        ("AccountName=ada;AccountKey=hunter2", "expected the address of a server"),
        ("hunter2", "expected the address of a server"),
        ("https://", "expected the address of a server"),
        ("https://example.com:hunter2", "expected the address of a server"),
        ("https://[hunter2", "expected the address of a server"),
        ("https://example.com/\nhunter2", "expected the address of a server"),
    ],
)
def test_other_texts_are_refused_and_not_quoted(address: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as refused:
        check_address(address, "token")
    assert "hunter2" not in str(refused.value)
