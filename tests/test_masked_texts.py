"""Secrets in the texts of errors."""

from __future__ import annotations

import pytest

from det_core.interfaces.secrets import MASK, find_credentials, mask_texts


@pytest.mark.parametrize(
    ("message", "secrets", "shown"),
    [
        ("cannot read a file as ada: /home/ada", ["ada"], "cannot read a file as ********: /home/********"),
        ("adapter of a camera: a", ["a"], "adapter of ******** camera: ********"),
        ("xhunter2x, 'a\\\\b-long'", ["hunter2", "a\\b-long"], "x********x, '********'"),
        ("hunter22 hunter2", ["hunter2", "hunter22"], "******** ********"),
        ("2 * 3", ["*", ""], "2 ******** 3"),
        ("nothing", [], "nothing"),
    ],
)
def test_short_secrets_are_masked_as_words_only(message: str, secrets: list[str], shown: str) -> None:
    assert mask_texts(message, secrets) == shown


@pytest.mark.parametrize(
    ("value", "message", "shown"),
    [
        (
            "gs://b/a?token=hunter2",
            "write bucket: b and prefix: a?token=hunter2",
            "write bucket: b and prefix: a?********",
        ),
        ("https://me:hun/ter2@host", "no https://me:hun/ter2@host", "no https://********@host"),
        ("sftp:me:hunter2@host/a", "no sftp:me:hunter2@host/a", "no sftp:********@host/a"),
        ("me:hunter2@host:a", "no me:hunter2@host:a", "no me:********@host:a"),
        ("AccountName=me;AccountKey=hunter2==;A=b", "hunter2== of me", "******** of me"),
        ("python train.py", "python train.py", "python train.py"),
    ],
)
def test_credentials_in_urls_and_connection_strings_are_found(value: str, message: str, shown: str) -> None:
    assert mask_texts(message, find_credentials(value)) == shown


@pytest.mark.parametrize("text", [":" * 500_000, "://" * 200_000, "passw" * 100_000])
def test_long_texts_are_read_once(text: str) -> None:
    """A search that begins anew at each colon would take hours."""
    assert find_credentials(text) == []


def test_a_message_is_masked_as_a_whole_if_it_may_quote_very_many_secrets() -> None:
    """A search for each of them would take hours."""
    text = "".join(f"sig={number}&" for number in range(100_000))
    assert mask_texts(text, find_credentials(text)) == MASK
