"""The compliance suite for stores. A store that passes it keeps checkpoints as det promises.

A file with these lines tests yours (`docs/storage.md`)::

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
    """Derive from it, override the fixture ``opener``, and the fixture ``broken`` if you can.

    Attributes say what a medium cannot do: ``longest_part``, ``longest_path``, ``newlines``, ``exact_sizes``,
    ``large_file``, ``processes``, ``expected_failures``. Redefining a test is an error.
    """
