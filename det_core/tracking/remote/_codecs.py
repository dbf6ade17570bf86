"""Conversion of arguments and results to JSON and back, derived from their annotations."""

from __future__ import annotations

import base64
import json
import reprlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from operator import index
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from det_core.interfaces.records import Shortened
from det_core.json_values import EncodedJson, dump_json_value

_T = TypeVar("_T")


class CodecMismatch(TypeError):
    """A value does not match its annotation."""


class Codec(NamedTuple):
    """Conversion of the values of one annotation."""

    dump: Callable[[Any], str]
    """Return JSON text. Raises CodecMismatch, or TypeError as the store itself for a value that JSON cannot hold."""
    load: Callable[[Any], Any]
    """Return the value of decoded JSON. Raises CodecMismatch."""
    dump_items: Callable[[Any], Iterator[str]] | None = None
    """Yield the same text as ``dump`` in parts, for values that may be large."""

    def dump_parts(self, value: Any) -> Iterator[str]:
        """Yield the text of a value, in parts if it may be large."""
        return self.dump_items(value) if self.dump_items else iter([self.dump(value)])


MAX_BODY_BYTES = 288 << 20
"""Maximum size of a call or an answer before compression, and as sent.

The largest single value is the code of an experiment. Its archive has at most 192 MiB, which are 256 MiB in base64.
"""

_BYTES_AT_ONCE = 192 << 10
"""Number of bytes that are encoded or decoded at once, a multiple of 3, because no other thread runs meanwhile."""
_BITS = 64
_IS_SHORTENED = "_det_shortened"
"""Key that marks a `Shortened` mapping."""
_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 100

dump_text = json.JSONEncoder(ensure_ascii=False).encode
"""Encoder of strings. It keeps halves of surrogate pairs apart, which escapes would join."""


@cache
def codec_of(hint: Any) -> Codec:
    """Return the codec of an annotation.

    Raises:
        TypeError: the annotation is not supported.
    """
    if hint in _SCALARS:
        return _SCALARS[hint]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return Codec(lambda value: dump_text(hint(value).value), lambda value: _converted(hint, value, hint.__name__))
    if isinstance(hint, type) and is_dataclass(hint):
        return _record_codec(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if _is_json(hint):
        return _JSON_OBJECT if origin in _MAPPINGS else _JSON_ARRAY
    if origin in _MAKERS:
        return _MAKERS[origin](*arguments)
    raise TypeError(f"the annotation {hint} is not supported by the tracking store's protocol; add it to {__name__}")


def _is_json(hint: Any) -> bool:
    """Return whether a value of the annotation is encoded in one piece, so that errors name its place in the whole."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in _MAPPINGS:
        return arguments[0] is str and _is_json(arguments[1])
    return hint is Any or (origin in _LISTS and _is_json(arguments[0]))


def _mismatch(value: object, expected: str) -> CodecMismatch:
    return CodecMismatch(f"{_short.repr(value)} is a {type(value).__name__}, expected {expected}")


def _converted(convert: Callable[[Any], Any], value: Any, expected: str) -> Any:
    try:
        return convert(value)
    except (TypeError, ValueError):
        raise _mismatch(value, expected) from None


def _loader(expected: str, *kinds: type) -> Callable[[Any], Any]:
    """Return a function that returns values of exactly these types. A bool is therefore not an int."""

    def load(value: Any) -> Any:
        if type(value) not in kinds:
            raise _mismatch(value, expected)
        return value

    return load


_load_text = _loader("a str", str)
_load_list = _loader("a list", list)
_load_dict = _loader("a dict", dict)


def _dump_int(value: Any) -> str:
    return int.__repr__(_converted(index, value, "an int"))


def _dump_float(value: Any) -> str:
    if not isinstance(value, (int, float)):
        raise _mismatch(value, "a float")
    return dump_json_value(value)


def _dump_str(value: Any) -> str:
    if not isinstance(value, str):
        raise _mismatch(value, "a str")
    return dump_text(value)


def _dump_time(value: Any) -> str:
    if not isinstance(value, datetime):
        raise _mismatch(value, "a datetime")
    # A time without a zone is local, and the other side may be in another zone.
    return dump_text((value if value.tzinfo else value.astimezone()).isoformat())


def _dump_bytes(value: Any) -> Iterator[str]:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise _mismatch(value, "bytes")
    whole = memoryview(value).cast("B")
    yield '"'
    for begin in range(0, len(whole), _BYTES_AT_ONCE):
        yield base64.b64encode(whole[begin : begin + _BYTES_AT_ONCE]).decode()
    yield '"'


def load_base64(text: str) -> bytes:
    """Return the bytes that base64 stands for. Other threads run while a long text is decoded.

    Raises:
        ValueError: the text is not base64.
    """
    length = _BYTES_AT_ONCE // 3 * 4
    parts = (text[begin : begin + length] for begin in range(0, len(text), length))
    return b"".join(base64.b64decode(part, validate=True) for part in parts)


def _load_bytes(value: Any) -> bytes:
    try:
        return load_base64(_load_text(value))
    except ValueError:
        raise _mismatch(value, "base64") from None


def _dump_object(value: Any) -> str:
    if isinstance(value, EncodedJson):
        return value.text
    if isinstance(value, Shortened):
        return dump_json_value({**value, _IS_SHORTENED: True})
    if isinstance(value, Mapping) and not all(isinstance(key, str) for key in value):
        # JSON has only text as keys, and would convert the others.
        return "[" + ",".join(dump_json_value(pair) for pair in value.items()) + "]"
    return dump_json_value(value)


def _load_object(value: Any) -> Any:
    if isinstance(value, list):
        return _converted(_load_pairs, value, "a dict or a list of pairs")
    found = _load_dict(value)
    return Shortened(found) if found.pop(_IS_SHORTENED, False) else found


def _load_pairs(pairs: list[Any]) -> dict[Any, Any]:
    return {_load_hashed_int(key) if type(key) is int else key: item for key, item in pairs}


def _load_hashed_int(value: Any) -> int:
    """Return an integer that callers may put into a set. The hashes of any number of larger ones can be the same."""
    if type(value) is not int or value.bit_length() > _BITS:
        raise _mismatch(value, f"an int of at most {_BITS} bits")
    return value


_SCALARS: Mapping[Any, Codec] = {
    Any: Codec(dump_json_value, lambda value: value),
    NoneType: Codec(lambda value: "null", _loader("None", NoneType)),
    bool: Codec(lambda value: "true" if value else "false", _loader("a bool", bool)),
    int: Codec(_dump_int, _loader("an int", int)),
    float: Codec(_dump_float, _loader("a float", float, int)),
    str: Codec(_dump_str, _load_text),
    bytes: Codec(lambda value: "".join(_dump_bytes(value)), _load_bytes, _dump_bytes),
    datetime: Codec(_dump_time, lambda value: _converted(datetime.fromisoformat, value, "a time in ISO 8601")),
}
_JSON_OBJECT = Codec(_dump_object, _load_object)
_JSON_ARRAY = Codec(dump_json_value, _load_list)


def _record_codec(record: type[Any]) -> Codec:
    hints = get_type_hints(record)
    codecs = {field.name: codec_of(hints[field.name]) for field in fields(record)}
    dumps = [(name, f'"{name}":', codec.dump) for name, codec in codecs.items()]
    loads = {name: codec.load for name, codec in codecs.items()}

    def dump(value: Any) -> str:
        if not isinstance(value, record):
            raise _mismatch(value, f"a {record.__name__}")
        return "{" + ",".join(key + dump(getattr(value, name)) for name, key, dump in dumps) + "}"

    def load(value: Any) -> Any:
        try:
            return record(**{name: loads[name](item) for name, item in _load_dict(value).items()})
        except KeyError as error:
            raise CodecMismatch(f"a {record.__name__} has no field {error}") from None
        except CodecMismatch:
            raise
        except TypeError as error:  # a field is missing
            raise CodecMismatch(f"{record.__name__}: {error}") from None

    return Codec(dump, load)


def load_record(record: type[_T], content: object, *, is_exact: bool = False) -> _T:
    """Return the dataclass that decoded JSON describes.

    Args:
        record: the dataclass.
        content: the decoded JSON.
        is_exact: whether names of no field are errors, and not ignored.

    Raises:
        TypeError: a value is missing or has another type.
    """
    given = _load_dict(content)
    values = dict(given) if is_exact else {}
    for field in fields(record):  # type: ignore[arg-type]
        if field.name not in given and field.default is field.default_factory is MISSING:
            raise CodecMismatch(f"{field.name} is missing")
    for name, hint in get_type_hints(record).items():
        if name in given:
            try:
                values[name] = codec_of(hint).load(given[name])
            except CodecMismatch as error:
                raise CodecMismatch(f"{name}: {error}") from None
    return record(**values)


def _sequence_maker(collect: Callable[[Iterable[Any]], Any]) -> Callable[[Any], Codec]:
    def make(item: Any) -> Codec:
        codec = _SCALARS[int]._replace(load=_load_hashed_int) if item is int else codec_of(item)
        # Databases limit the number of values, such as states, which are few unless they are repeated.
        load_items = _load_each_once if isinstance(item, type) and issubclass(item, Enum) else map

        def dump_items(value: Any) -> Iterator[str]:
            yield "["
            length = 0
            for number, item in enumerate(_converted(iter, value, "a list")):
                text = codec.dump(item)
                yield f",{text}" if number else text
                length += len(text)
                if length > MAX_BODY_BYTES:  # too long to be sent, and an iterator may be endless
                    break
            yield "]"

        return Codec(
            lambda value: "".join(dump_items(value)),
            lambda value: collect(load_items(codec.load, _load_list(value))),
            dump_items,
        )

    return make


def _load_each_once(load: Callable[[Any], Any], values: Iterable[Any]) -> Iterable[Any]:
    return dict.fromkeys(map(load, values))


def _mapping_codec(key: Any, item: Any) -> Codec:
    keys, items = codec_of(key), codec_of(item)
    pair = _tuple_codec(key, item)

    def dump_items(value: Any) -> Iterator[str]:
        brackets = "{}" if key is str else "[]"
        yield brackets[0]
        for number, (name, item) in enumerate(value.items()):
            text = f"{keys.dump(name)}:{items.dump(item)}" if key is str else pair.dump((name, item))
            yield f",{text}" if number else text
        yield brackets[1]

    def load(value: Any) -> Any:
        if key is str:
            return {name: items.load(item) for name, item in _load_dict(value).items()}
        return dict(map(pair.load, _load_list(value)))

    return Codec(lambda value: "".join(dump_items(value)), load, dump_items)


def _tuple_codec(*items: Any) -> Codec:
    codecs = [codec_of(item) for item in items]

    def load(value: Any) -> Any:
        if len(_load_list(value)) != len(codecs):
            raise _mismatch(value, f"{len(codecs)} items")
        return tuple(codec.load(item) for codec, item in zip(codecs, value, strict=True))

    return Codec(
        lambda value: "[" + ",".join(codec.dump(item) for codec, item in zip(codecs, value, strict=True)) + "]", load
    )


def _union_codec(*members: Any) -> Codec:
    """Return the codec of ``X | None``, or of several types of scalars."""
    others = [member for member in members if member is not NoneType]
    if len(others) > 1:
        if not set(others) <= {int, str, bool}:
            raise TypeError(f"a union of {members} is not supported by the tracking store's protocol")
        return Codec(dump_json_value, _loader(" or ".join(other.__name__ for other in others), *members))
    codec = codec_of(others[0])
    return Codec(
        lambda value: "null" if value is None else codec.dump(value),
        lambda value: None if value is None else codec.load(value),
    )


_MAPPINGS = (dict, Mapping)
_LISTS = (list, Sequence, Collection)
_MAKERS: Mapping[Any, Callable[..., Codec]] = {
    **dict.fromkeys(_LISTS, _sequence_maker(list)),
    **dict.fromkeys(_MAPPINGS, _mapping_codec),
    **dict.fromkeys((Union, UnionType), _union_codec),
    Iterator: _sequence_maker(lambda items: iter(list(items))),
    set: _sequence_maker(set),
    tuple: _tuple_codec,
}
