"""Calls of the tracking store and their answers as bytes.

A call is the name of a method and a JSON object with its arguments. An answer is a JSON object with the result
(``{"returned": ...}``) or with the class and the message of an error (``{"raised": [..., ...]}``). Both are compressed
with gzip if they are long. A call that may be repeated begins with a line with its id.
"""

from __future__ import annotations

import inspect
import itertools
import json
import json.scanner
import logging
import re
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, chain
from typing import Any, get_type_hints

from det_core import errors
from det_core.errors import CallTooLarge, TrackingError
from det_core.interfaces.tracking import Rights, TrackingStore
from det_core.tracking.remote._codecs import MAX_BODY_BYTES, CodecMismatch, codec_of, dump_text

_log = logging.getLogger("det.tracking")

MAX_READING_BYTES = 1 << 20
"""Maximum size of a call that reads. A hundred thousand ids take less."""
_MAX_WRITING_BYTES = 32 << 20
"""Maximum size of a call that writes, except its code. A report of a million numbers takes less."""
_MAX_VALUES = 2_000_000
"""Maximum number of values in a call."""
_MAX_LEVELS = 100
"""Maximum nesting of the values in a call. Records that are deeper could not be decoded everywhere."""
_LONGEST_MESSAGE = 10_000
_DEEPER = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(code for code in range(256) if code not in _DEEPER)
_HALF = re.compile(rb"\xed[\xa0-\xbf]")
"""Beginning of half of a surrogate pair."""
_MOST_HALVES = 10_000
"""Maximum number of halves of surrogate pairs in a body, because no other thread runs while they are decoded."""
_AT_ONCE = 256 << 10
"""Number of bytes or characters that are searched, encoded or compressed at once, because no other thread runs
meanwhile."""
_VALUES_AT_ONCE = 200_000
"""Number of values above which JSON is decoded by Python's own code. The faster one lets no other thread run."""
_COMPRESS_ABOVE = 4 << 10
"""Size in bytes above which gzip saves more time on a network than it takes."""
_GZIP = b"\x1f\x8b"
"""First bytes of a compressed body. JSON text never starts with them."""
_CALL_ID = re.compile(rb"([0-9a-f]{32}-[0-9]{1,20})\n")
"""First line of a call with an id, with which neither JSON text nor a compressed body starts."""

_ERRORS: Mapping[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        *(kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TrackingError)),
        TypeError,
        ValueError,
        KeyError,
        OverflowError,  # of a number that is too large for the database
    )
}
"""Errors that are raised again as they are, and not logged. One of a subclass becomes one of its base class."""

RETURNED_NOTHING = b'{"returned":null}'
"""Answer of a method that returns nothing."""
METHODS = TrackingStore.__abstractmethods__ - {"close"}
"""Names of the methods and properties that can be called."""
_COUNTS = {"limit", "offset"}
"""Arguments that count rows. A negative number is an error of some databases, and no limit in others."""


class StoreMethod:
    """Encoding of the calls of one method.

    Args:
        name: name of the method or property in `TrackingStore`.
    """

    def __init__(self, name: str) -> None:
        member: Any = getattr(TrackingStore, name)
        self.name = name
        self.is_property = isinstance(member, property)
        function = member.fget if self.is_property else member
        self.rights: Rights = function.rights
        """Statement of the method on its calls."""
        hints = get_type_hints(function)
        returned = hints.pop("return")
        self._result = codec_of(returned)
        self._codes = [parameter for parameter, hint in hints.items() if hint is bytes]
        self.has_code = bool(self._codes) or returned is bytes
        """Whether its calls or their answers have the code of an experiment."""
        self._arguments = {parameter: codec_of(hint) for parameter, hint in hints.items()}
        _, *parameters = inspect.signature(function).parameters.values()  # without self
        self._signature = inspect.Signature(parameters)

    @property
    def max_bytes(self) -> int:
        """Maximum size of a call before compression, and as sent."""
        if not self.rights.writes:
            return MAX_READING_BYTES
        return MAX_BODY_BYTES if self._codes else _MAX_WRITING_BYTES

    def takes(self, argument: str) -> bool:
        """Return whether the method has an argument."""
        return argument in self._arguments

    def dump_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """Return the body of a call.

        Raises:
            TypeError: the arguments do not match the signature, or JSON cannot hold a value.
            TrackingError: the body is larger than `max_bytes`.
        """
        try:
            bound = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self.name}(): {error}") from None
        texts = []
        for name, value in bound.items():
            try:
                texts.append(f'"{name}":{self._arguments[name].dump(value)}')
            except CodecMismatch as error:
                raise TypeError(f"{self.name}(): {name}: {error}") from None
        text, what = "{" + ",".join(texts) + "}", f"the call of {self.name}"
        if sum(map(text.count, ",[{")) > _MAX_VALUES:
            raise CallTooLarge(f"{what} has more than {_MAX_VALUES} values; send less in one call")
        return _pack([text], what, self.max_bytes)

    def load_arguments(self, body: bytes) -> dict[str, Any]:
        """Return the arguments of a call by name.

        Raises:
            TrackingError: the body is not a call of this method.
        """
        try:
            body = _decompress(body, self.max_bytes)
            given = load_values(body)
            code = sum(len(given[name]) for name in self._codes if isinstance(given.get(name), str))
            if len(body) - code > _MAX_WRITING_BYTES:
                raise CallTooLarge(f"the call of {self.name} has more than {_MAX_WRITING_BYTES >> 20} MiB without code")
            unknown = given.keys() - self._arguments.keys()
            if unknown:
                raise CodecMismatch(f"there is no argument {min(unknown)!r}")
            arguments = {name: self._arguments[name].load(value) for name, value in given.items()}
            self._signature.bind(**arguments)
            for name in _COUNTS & arguments.keys():
                if (arguments[name] or 0) < 0:
                    raise CodecMismatch(f"{name} is {arguments[name]}; expected at least 0")
        except (TypeError, ValueError, RecursionError) as error:
            raise TrackingError(f"the call of {self.name} is malformed: {error}. {_SAME_RELEASE}") from None
        return arguments

    def dump_result(self, value: Any) -> bytes:
        """Return the answer with a result.

        Raises:
            TrackingError: the answer is larger than `MAX_BODY_BYTES`.
        """
        parts = chain(['{"returned":'], self._result.dump_parts(value), ["}"])
        return _pack(parts, f"the answer of {self.name}", MAX_BODY_BYTES)

    def load_answer(self, body: bytes) -> Any:
        """Return the result in an answer.

        Raises:
            Exception: the answer is an error, of the class that it had on the other side.
            TrackingError: the answer is malformed, or the error had an unknown class.
        """
        try:
            answer = _decode(_decompress(body, MAX_BODY_BYTES))
            if "raised" not in answer:
                return self._result.load(answer["returned"])
            kind, message = map(str, answer["raised"])
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise TrackingError(f"the answer of {self.name} is malformed: {error}. {_SAME_RELEASE}") from None
        raise _ERRORS.get(kind, TrackingError)(message)


_SAME_RELEASE = "Install the same release of det-core on all hosts"


class CallIds:
    """Source of the ids of the calls of one lane, which has one call at a time and belongs to one process."""

    def __init__(self) -> None:
        self._lane = uuid.uuid4().hex
        self._numbers = itertools.count()

    def next_id(self) -> str:
        """Return the id for another call, as ``LANE-NUMBER``."""
        return f"{self._lane}-{next(self._numbers)}"


def add_call_id(call_id: str, body: bytes) -> bytes:
    """Return the body of a call with the id of the call."""
    return b"%b\n%b" % (call_id.encode(), body)


def split_call_id(body: bytes) -> tuple[str | None, bytes]:
    """Return the id of a call, or None if it has none, and its body without the id."""
    found = _CALL_ID.match(body)
    return (found[1].decode(), body[found.end() :]) if found else (None, body)


@cache
def find_method(name: str) -> StoreMethod:
    """Return a method of the tracking store.

    Raises:
        TrackingError: there is no such method.
    """
    if name not in METHODS:
        raise TrackingError(f"the tracking store has no method {name!r:.100}. {_SAME_RELEASE}")
    return StoreMethod(name)


def is_writing(name: str) -> bool:
    """Return whether a method changes records, which one that does not exist never does."""
    return name in METHODS and find_method(name).rights.writes


def has_code(name: str) -> bool:
    """Return whether the calls of a method or their answers have the code of an experiment, which takes memory."""
    return name in METHODS and find_method(name).has_code


def max_call_bytes(name: str) -> int:
    """Return the maximum size of a call in bytes, also for a method that does not exist."""
    return find_method(name).max_bytes if name in METHODS else MAX_READING_BYTES


def dump_error(error: Exception) -> bytes:
    """Return the answer with an error. An error that the store does not document becomes a TrackingError."""
    known = next((kind for kind in type(error).__mro__ if _ERRORS.get(kind.__name__) is kind), None)
    # str() of a KeyError quotes its argument, and would do so again on the other side.
    message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if known is None:
        _log.error("a call of the tracking store failed", exc_info=error)
        known, message = TrackingError, f"{type(error).__qualname__}: {message}"
    raised = f"[{dump_text(known.__name__)},{dump_text(message[:_LONGEST_MESSAGE])}]"
    return _pack([f'{{"raised":{raised}}}'], "the error", MAX_BODY_BYTES)


def _pack(texts: Iterable[str], what: str, limit: int) -> bytes:
    """Return a body with these texts, which are compressed if they are long."""
    parts = _encoded(texts, what, limit)
    first = next(parts)
    if len(first) <= _COMPRESS_ABOVE:  # the only part
        return first
    stream = zlib.compressobj(1, wbits=31)
    return b"".join([*map(stream.compress, chain([first], parts)), stream.flush()])


def _encoded(texts: Iterable[str], what: str, limit: int) -> Iterator[bytes]:
    """Yield texts as bytes, in parts of at least `_AT_ONCE` characters except the last one."""
    size = 0
    for text in _joined(texts):
        part = text.encode(errors="surrogatepass")
        size += len(part)
        if size > limit:
            raise CallTooLarge(
                f"{what} has more than {limit >> 20} MiB, which cannot be sent at once; "
                "send less in one call, or ask for less, for example with limit, after or group"
            )
        yield part


def _joined(texts: Iterable[str]) -> Iterator[str]:
    joined, characters = list[str](), 0
    for text in texts:
        joined.append(text)
        characters += len(text)
        if characters >= _AT_ONCE:
            yield "".join(joined)
            joined, characters = [], 0
    yield "".join(joined)


def _count_values(body: bytes) -> int:
    """Return the number of values in JSON text or more, because commas in texts count, too."""
    return sum(map(body.count, (b",", b"[", b"{")))


def _require_shallow(body: bytes) -> None:
    """Raise ValueError if JSON text is nested more than `_MAX_LEVELS` deep, without decoding it."""
    if body.count(b"[") + body.count(b"{") <= _MAX_LEVELS:
        return
    depth = 0
    for brackets in _brackets(body.replace(rb"\\", b"").replace(rb"\"", b"")):
        depths = list(accumulate(map(_DEEPER.__getitem__, brackets), initial=depth))
        if max(depths) > _MAX_LEVELS:
            raise ValueError(f"its values are nested more than {_MAX_LEVELS} levels deep")
        depth = depths[-1]
        if depth < 0:
            raise ValueError("it has more closing than opening brackets")


def _brackets(body: bytes) -> Iterator[bytes]:
    """Yield the brackets outside of the texts of JSON without backslashes."""
    is_text = False
    for begin in range(0, len(body), _AT_ONCE):
        pieces = body[begin : begin + _AT_ONCE].split(b'"')
        yield b"".join(pieces[is_text::2]).translate(None, delete=_NO_BRACKETS)
        is_text ^= len(pieces) % 2 == 0


def load_values(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a text that a client has sent. Other threads run while a large one is decoded.

    Raises:
        CallTooLarge: it has too many values, each of which takes up to 100 bytes of memory.
        TypeError, ValueError, RecursionError: it is malformed, or nested too deep.
    """
    values = _count_values(body)
    if values > _MAX_VALUES:
        raise CallTooLarge(f"the call has more than {_MAX_VALUES} values; send less in one call")
    if body.count(b"\\") > _MAX_WRITING_BYTES:  # which code has none of
        raise CallTooLarge(
            f"the call has more than {_MAX_WRITING_BYTES >> 20} MiB of backslashes; send less in one call"
        )
    _require_shallow(body)
    return _decode(body, json.JSONDecoder if values <= _VALUES_AT_ONCE else _PythonDecoder)


class _PythonDecoder(json.JSONDecoder):
    """Decoder in Python, which other threads interrupt."""

    def __init__(self) -> None:
        super().__init__()
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]


def _decompress(body: bytes, limit: int) -> bytes:
    """Return the JSON text of a body, which may be compressed.

    Args:
        body: the body.
        limit: maximum number of bytes before compression.

    Raises:
        ValueError: the body is malformed or too large.
    """
    if body.startswith(_GZIP):
        stream = zlib.decompressobj(wbits=31)
        try:
            body = stream.decompress(body, limit + 1)
        except zlib.error as error:
            raise ValueError(str(error)) from None
        if len(body) <= limit and not stream.eof:
            raise ValueError("the compressed data are truncated")
        if stream.unused_data:
            raise ValueError("other data follow the compressed data")
    if len(body) > limit:
        raise ValueError(f"it has more than {limit >> 20} MiB")
    return body


def _decode_text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        halves = 0
        for begin in range(0, len(body), _AT_ONCE):
            halves += len(_HALF.findall(body, begin, begin + _AT_ONCE))
            if halves > _MOST_HALVES:
                raise ValueError(f"it has more than {_MOST_HALVES} halves of surrogate pairs") from None
        return body.decode(errors="surrogatepass")


def _decode(body: bytes, decoder: type[json.JSONDecoder] = json.JSONDecoder) -> dict[str, Any]:
    """Return the JSON object in a text.

    Raises:
        TypeError, ValueError, RecursionError: the text is malformed.
    """
    found = decoder().decode(_decode_text(body))
    if not isinstance(found, dict):
        raise TypeError("expected a JSON object")
    return found


class RemoteChannel:
    """Channel of a remote store to the side that executes its calls."""

    def __init__(self, call: Callable[[str, bytes], bytes], url: str, close: Callable[[], None]) -> None:
        self.url = url
        self._send = call
        self._close = close

    def _call(self, name: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        method = find_method(name)
        return method.load_answer(self._send(name, method.dump_arguments(args, kwargs or {})))

    def pass_on(self, name: str, body: bytes) -> bytes:
        """Send a call with its id as somebody else has encoded it, and return the answer."""
        return self._send(name, body)

    def close(self) -> None:
        self._close()
