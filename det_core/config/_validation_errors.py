"""Translation of pydantic's validation errors to problems with a location, a cause and a remedy."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from det_core.config._block import UnknownKey
from det_core.config._document import Document, Location
from det_core.config._secrets import is_secret
from det_core.errors import Problem
from det_core.interfaces.secrets import find_credentials, iter_texts, mask_texts

_SHOWN = 60
MOST_PROBLEMS = 100
"""Maximum number of errors that are explained, because a config can have one per few bytes."""

# Expected input by type of pydantic error. Words in {braces} come from the error's context.
_EXPECTED = {
    "bool_type": "true or false; write it without quotes",
    "int_type": "a whole number; write its digits without quotes",
    "int_from_float": "a whole number; remove the fraction",
    "float_type": "a number; write it without quotes",
    "finite_number": "a finite number",
    "string_type": "text; put it in quotes",
    "string_too_short": "text with {min_length} character or more",
    "string_too_long": "text with {max_length} characters or fewer",
    "string_pattern_mismatch": "text that matches {pattern}",
    "path_type": "a path; put it in quotes",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "literal_error": "{expected}; write one of them",
    "union_tag_invalid": "one of {expected_tags}; write one of them (a nested mapping cannot have this key; "
    "for a plain value that has it, write `{{type: const, val: ...}}`)",
    "too_short": "{min_length} item or more; add an item",
    "dict_type": "a mapping; write `key: value` lines below it",
    "model_type": "a mapping; write `key: value` lines below it",
    "model_attributes_type": "a mapping; write `key: value` lines below it",
    "list_type": "a list; write `- item` lines below it",
    "tuple_type": "a list; write `- item` lines below it",
}


def explain_errors(error: ValidationError, document: Document) -> Iterator[Problem]:
    """Yield one problem per location and cause.

    If a value was refused by several alternatives of a union, the problem lists the remedies of all of them. The
    errors after the first `MOST_PROBLEMS` become one problem.

    Args:
        error: the validation error.
        document: the document that was validated. Its secrets are masked in the messages.
    """
    found: dict[tuple[Location, str], dict[str, None]] = {}
    secrets = {text for location, text in iter_texts(document.value) if is_secret(location)}
    errors = error.errors(include_url=False)
    for details in errors[:MOST_PROBLEMS]:
        if _has_enough_items(details):
            continue
        location = _locate(details, document.value)
        wrong, remedy = _explain(details, location, _given_keys(location, document), secrets)
        found.setdefault((location, wrong), {})[remedy] = None
    for (location, wrong), remedies in found.items():
        yield document.problem(location, "; ".join(filter(None, (wrong, "; or ".join(remedies)))))
    if len(errors) > MOST_PROBLEMS:
        yield document.problem((), "there are further problems; correct the others first")


def explain_block(error: ValidationError, name: str, value: Any) -> str:
    """Return the problems of a config block that has no file, in one line.

    Args:
        error: the validation error.
        name: name of the block in messages.
        value: the block that was validated.
    """
    return "; ".join(str(problem) for problem in explain_errors(error, Document(name, value)))


def _has_enough_items(details: ErrorDetails) -> bool:
    """Return whether a list is only too short because pydantic did not count its wrong items, which it also reports."""
    return details["type"] == "too_short" and len(details["input"]) >= details["ctx"]["min_length"]


def _locate(details: ErrorDetails, value: Any) -> Location:
    """Return the location in the user's file.

    Pydantic's location also contains names of union alternatives and of model fields that the file does not have.
    """
    location: list[str | int] = []
    tag = [details["ctx"]["discriminator"].strip("'")] if details["type"] == "union_tag_invalid" else []
    for part in (*details["loc"], *tag):
        if part in (value if isinstance(value, Mapping) else range(len(value)) if isinstance(value, list) else ()):
            value = value[part]
        elif details["type"] != "missing" or part != details["loc"][-1]:
            continue
        location.append(part)
    return tuple(location)


def _given_keys(location: Location, document: Document) -> Collection[str]:
    """Return the keys beside a value that must not be given again. A value from the command line may replace any."""
    from_command_line = document.lines and location not in document.lines
    return () if from_command_line else document.value_at(location[:-1])


def _explain(
    details: ErrorDetails, location: Location, given: Collection[str], secrets: Collection[str]
) -> tuple[str, str]:
    """Return the cause of an error, which may be empty, and its remedy.

    Args:
        details: the error.
        location: location of the wrong value.
        given: keys that the remedy must not suggest.
        secrets: texts that the remedy must not contain.
    """
    kind, context = details["type"], details.get("ctx", {})
    value = context.get("tag", details["input"])
    credentials = find_credentials(value) if isinstance(value, str) else []
    shown = mask_texts(value, credentials) if credentials else value
    if kind == "missing":
        return "a required key is missing", f"add `{location[-1]}: ...`"
    if kind == "extra_forbidden":
        return "unknown key", _suggest(str(location[-1]), value, given)
    if kind in _EXPECTED:
        return _seen(shown, location), "expected " + _EXPECTED[kind].format(**context)
    message = str(context.get("error", details["msg"])).replace("Input should be", "expected")
    if "error" in context:  # a plugin's own error message may quote a secret
        message = mask_texts(message, [*secrets, *credentials])
    if isinstance(value, (Mapping, list)):
        return "", message
    quoted = isinstance(value, str) and repr(shown) in message
    return "" if quoted else _seen(shown, location), message


def _suggest(key: str, value: Any, given: Collection[str]) -> str:
    expected = value.known if isinstance(value, UnknownKey) else ()
    known, present = ([name for name in expected if (name in given) is is_given] for is_given in (False, True))
    for names in (known, () if known else present):
        for close in difflib.get_close_matches(key, names, n=1):
            return f"did you mean {close!r}?"
    if not known:
        return "remove it"
    given_too = f" (already set: {', '.join(present)})" if present else ""
    return f"expected one of: {', '.join(known)}{given_too}"


def _seen(value: Any, location: Location) -> str:
    if isinstance(value, Mapping):
        return "got a mapping"
    if isinstance(value, (list, tuple)):
        return "got a list" if value else "got an empty list"
    if is_secret(location):
        return "got a value that is not shown"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return f"got {text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}"
