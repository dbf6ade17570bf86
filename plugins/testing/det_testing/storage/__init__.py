"""Compliance suite for stores. A store that passes it keeps checkpoints complete and intact.

A file with these lines tests your store (`docs/storage.md`)::

    class TestMyStorage(StorageCompliance):
        @pytest.fixture
        def opener(self, tmp_path):
            return functools.partial(MyStorage, MyConfig(path=tmp_path))
"""

from __future__ import annotations

from det_testing.storage._checkpoint_tests import StoreCheckpointTests
from det_testing.storage._concurrency_tests import StoreConcurrencyTests
from det_testing.storage._file_tests import StoreFileTests
from det_testing.storage._name_tests import StoreNameTests
from det_testing.storage._store_suite import Damage, Opener

__all__ = ["Damage", "Opener", "StorageCompliance"]


class StorageCompliance(StoreFileTests, StoreNameTests, StoreCheckpointTests, StoreConcurrencyTests):
    """Base class for the tests of a store. Subclasses override the fixture ``opener``, and if possible ``broken`` and
    ``damage``.

    Attributes describe limitations of a medium: ``longest_part``, ``longest_path``, ``newlines``, ``exact_sizes``,
    ``large_file``, ``processes``, ``expected_failures``. Redefining a test is an error.
    """
