"""Creation and configuration of Google's client."""

from __future__ import annotations

from google.cloud import storage


def create_gcs_client(connections: int) -> storage.Client:
    """Return a client with the application's default credentials, or without credentials for an emulator.

    Args:
        connections: maximum number of connections that are kept open.
    """
    client = storage.Client(project=None)  # only the creation of buckets needs a project
    for adapter in client._http.adapters.values():  # the default of requests is 10 connections
        adapter.init_poolmanager(connections, connections)
    client._bucket_metadata_cache = None  # else a thread requests the bucket's location, only for traces
    return client
