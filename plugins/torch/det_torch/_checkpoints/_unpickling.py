"""Readers of pickled files that do not run arbitrary code.

A pickle is a program that calls the functions that it names. These readers allow only functions that do no more than
build a value. Objects of discontinued libraries are read as `AbsentObject`. Anything else needs ``trust=True``.
"""

from __future__ import annotations

import collections
import datetime
import io
import pickle
import pickletools
import re
import struct
import sys
import zipfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from pickle import load as load  # torch.load expects a pickle module to have load and Unpickler
from typing import IO, Any

import numpy as np
import torch
from torch.serialization import safe_globals

from det_core.errors import CheckpointCorrupt, StorageError, UntrustedCheckpoint

_DISCONTINUED = ("determined.", "determined_common.", "apex.")
_VALUES_OF_TORCH = re.compile(
    r"torch\.(cuda\.|sparse\.|storage\.)*\w*(Storage|Tensor)|torch\.(Size|device|bool|[a-z]+\d\w*)|torch\._utils\._rebuild_\w+"
    r"|torch\.nn\.parameter\.Parameter|torch\.serialization\._get_layout|_codecs\.encode|collections\.Counter"
)
DAMAGE_ERRORS = (
    *(pickle.UnpicklingError, struct.error, zipfile.BadZipFile),
    *(EOFError, RuntimeError, ValueError, LookupError, TypeError, AssertionError),
)
"""Exceptions that readers of pickles and archives raise on malformed input."""
_MISSING = (ImportError, AttributeError)


class AbsentObject:
    """Placeholder for an object that was not built."""

    def __new__(cls, *args: Any, **kwargs: Any) -> AbsentObject:
        return super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __setstate__(self, state: Any) -> None: ...


def load_torch_file(path: Path, *, trust: bool) -> Any:
    """Load a file that ``torch.save`` of any release wrote, onto the CPU.

    Args:
        path: file to load.
        trust: whether the file may run code.

    Raises:
        UntrustedCheckpoint: the file holds more than values and is not trusted.
        CheckpointCorrupt: the file is not a complete file of ``torch.save``.
        StorageError: the file is trusted but needs code that cannot be imported.
    """
    try:
        if trust:
            return torch.load(path, map_location="cpu", weights_only=False, pickle_module=sys.modules[__name__])
        return _load_values(path)
    except DAMAGE_ERRORS as error:
        raise CheckpointCorrupt(f"{path} cannot be read as a file of torch.save: {error}") from error
    except _MISSING as error:
        raise _needs_code(path, error) from error


def load_plain_pickle(path: Path, *, trust: bool, known: Mapping[str, Any] = {}) -> Any:
    """Load a pickle of numbers, strings and containers.

    Args:
        path: file to load.
        trust: whether the file may run code.
        known: dotted path -> additional type or function that the pickle may name. It must only build a value.

    Raises:
        UntrustedCheckpoint: the pickle holds values of other types and is not trusted.
        CheckpointCorrupt: the file is not a complete pickle.
        StorageError: the file is trusted but needs code that cannot be imported.
    """
    try:
        with path.open("rb") as file:
            return (Unpickler(file) if trust else _PlainUnpickler(file, known)).load()
    except _Refused as refused:
        raise _untrusted(path, refused.args) from None
    except DAMAGE_ERRORS as error:
        raise CheckpointCorrupt(f"{path} cannot be read as a pickle: {error}") from error
    except _MISSING as error:
        raise _needs_code(path, error) from error


class Unpickler(pickle.Unpickler):
    """Unpickler for trusted files.

    It finds objects that numpy has moved, and builds `AbsentObject` for objects of the libraries in `_DISCONTINUED`.
    """

    def find_class(self, module: str, name: str) -> Any:
        path = f"{module}.{name}"
        if path in _NUMPY:
            return _NUMPY[path]
        try:
            return super().find_class(module, name)
        except _MISSING:
            if path.startswith(_DISCONTINUED):
                return AbsentObject
            raise


class _Refused(Exception):
    """Error for a name that a file of plain values must not have."""


class _PlainUnpickler(pickle.Unpickler):
    def __init__(self, file: IO[bytes], known: Mapping[str, Any]) -> None:
        super().__init__(file)
        self._known = known

    def find_class(self, module: str, name: str) -> Any:
        path = f"{module}.{name}"
        if path not in self._known:
            raise _Refused(path)
        return self._known[path]


def _load_values(path: Path) -> Any:
    names = set(_names(path))
    absent: list[Any] = [(AbsentObject, name) for name in names if name.startswith(_DISCONTINUED)]
    with safe_globals([*((kind, name) for name, kind in _HARMLESS.items()), *absent]):
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            refused = {name for name in names if name not in _HARMLESS and not _VALUES_OF_TORCH.fullmatch(name)}
            raise _untrusted(path, refused) from error


def _untrusted(path: Path, names: Collection[str]) -> UntrustedCheckpoint:
    needs = f"calls {', '.join(sorted(names))}" if names else "needs pickle instructions beyond those of torch.save"
    return UntrustedCheckpoint(
        f"{path} may hold more than values: reading it {needs}, which could run arbitrary code; "
        "if you trust its source, pass trust=True"
    )


def _needs_code(path: Path, error: Exception) -> StorageError:
    return StorageError(
        f"{path} needs code that cannot be found here: {error}; run where the code that saved it can be imported"
    )


def _names(path: Path) -> Iterator[str]:
    """Yield all names that the pickles in a file of ``torch.save`` refer to, in no particular order."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                if member.endswith("data.pkl"):
                    # Not read by zipfile, which requires a checksum that det does not write.
                    content = torch._C.PyTorchFileReader(str(path)).get_record("data.pkl")
                    yield from _names_in_pickle(io.BytesIO(content))
        return
    with path.open("rb") as file:
        for _ in ("magic number", "protocol", "system", "object"):
            yield from _names_in_pickle(file)


def _names_in_pickle(file: IO[bytes]) -> Iterator[str]:
    strings: list[Any] = [None, None]
    memo: dict[Any, Any] = {}
    for code, argument, _ in pickletools.genops(file):
        if code.name in ("GLOBAL", "INST"):
            yield str(argument).replace(" ", ".").replace("__builtin__.", "builtins.")  # name in Python 2
        elif code.name == "STACK_GLOBAL":
            yield f"{strings[-2]}.{strings[-1]}"
        elif code.name == "MEMOIZE":
            memo[len(memo)] = strings[-1]
        elif "PUT" in code.name:
            memo[argument] = strings[-1]
        elif "GET" in code.name:
            strings.append(memo.get(argument))
        elif "UNICODE" in code.name:
            strings.append(argument)


def _plain_dict(*_factory: Any) -> dict[Any, Any]:
    return {}


def _names_of_numpy() -> dict[str, Any]:
    array, scalar = np.zeros(1).__reduce__()[0], np.float64(1).__reduce__()[0]
    return {
        f"numpy.{core}.multiarray.{name}": function
        for core in ("core", "_core")
        for name, function in (("_reconstruct", array), ("scalar", scalar))
    }


def _harmless() -> dict[str, Any]:
    plain = (set, frozenset, list, dict, tuple, int, float, str, bytes, bytearray, bool, complex)
    times = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone)
    dtypes = {type(np.dtype(code)) for code in np.typecodes["All"]}
    return {
        **{f"builtins.{kind.__name__}": kind for kind in plain},
        **{f"datetime.{kind.__name__}": kind for kind in times},
        **{f"numpy.dtypes.{kind.__name__}": kind for kind in dtypes},
        "numpy.dtype": np.dtype,
        "numpy.ndarray": np.ndarray,
        "collections.OrderedDict": collections.OrderedDict,
        "collections.defaultdict": _plain_dict,
        **_NUMPY,
    }


_NUMPY = _names_of_numpy()
_HARMLESS = _harmless()
