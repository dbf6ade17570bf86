"""Listings of several pages, tested with moto."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import boto3
import google_crc32c
import pytest
from det_storage_s3._bucket import S3Bucket
from det_storage_s3._config import S3Config
from moto.server import ThreadedMotoServer

pytestmark = pytest.mark.integration


@pytest.fixture
def bucket() -> Iterator[S3Bucket]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"endpoint_url": f"http://{host}:{port}", "access_key": "AK", "secret_key": "SK", "region": "us-east-1"}
    try:
        bucket = S3Bucket(S3Config.model_validate({"bucket": "bkt", **keys}))
        session = boto3.session.Session("AK", "SK", region_name="us-east-1")
        session.client("s3", endpoint_url=keys["endpoint_url"]).create_bucket(Bucket="bkt")
        yield bucket
    finally:
        server.stop()


def test_a_listing_contains_all_pages(bucket: S3Bucket) -> None:
    keys = [f"p/{number} +%\u00e9" for number in range(1100)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda key: bucket.put(key, b"x", int(google_crc32c.value(b"x"))), keys))
    bucket.put("other", b"", 0)
    assert sorted(entry.key for entry in bucket.list("p/")) == sorted(keys)
    bucket.delete(keys[: bucket.batch])
    assert sorted(entry.key for entry in bucket.list("p/")) == sorted(keys[bucket.batch :])
