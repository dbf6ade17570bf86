"""Compliance suite for stores. A store that passes it keeps checkpoints complete and intact.

A file with these lines tests your store (`docs/storage.md`)::

    class TestMyStorage(StorageCompliance):
        @pytest.fixture
        def opener(self, tmp_path):
            return functools.partial(MyStorage, MyConfig(path=tmp_path))
"""

from __future__ import annotations

from det_core.testing.storage._checkpoints import Checkpoints
from det_core.testing.storage._files import Files
from det_core.testing.storage._names import Names
from det_core.testing.storage._store import Opener
from det_core.testing.storage._together import Together

__all__ = ["Opener", "StorageCompliance"]


class StorageCompliance(Files, Names, Checkpoints, Together):
    """Base class for the tests of a store. Subclasses override the fixture ``opener``, and if possible ``broken``.

    Attributes describe limitations of a medium: ``longest_part``, ``longest_path``, ``newlines``, ``exact_sizes``,
    ``large_file``, ``processes``, ``expected_failures``. Redefining a test is an error.
    """
