"""Google's client, as det wants it."""

from __future__ import annotations

from google.cloud import storage


def connect(connections: int) -> storage.Client:
    """A client with the application's default credentials, or without any for an emulator.

    Args:
        connections: that it keeps open.
    """
    client = storage.Client(project=None)  # only making buckets needs a project
    for adapter in client._http.adapters.values():  # requests' own pools keep 10
        adapter.init_poolmanager(connections, connections)
    client._bucket_metadata_cache = None  # else a thread asks for the bucket's place, for the sake of traces
    return client
