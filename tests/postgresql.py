"""PostgreSQL server for tests, on a Unix socket in its own directory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from det_testing.requirements import skip_or_fail_in_ci

BINARIES = Path("/usr/lib/postgresql/15/bin")


class PostgreSQL:
    """Server that can be stopped and started again with the same data.

    Attributes:
        directory: directory of its socket and its data.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._user: dict[str, Any] = {}
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            shutil.chown(directory, "postgres", "postgres")
            self._user = {"user": "postgres", "group": "postgres", "extra_groups": []}
        initdb = [str(BINARIES / "initdb"), "-D", self._data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8"]
        subprocess.run(initdb, check=True, cwd=directory, stdout=subprocess.DEVNULL, **self._user)
        self.start()

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        options = ["-k", self.directory, "-c", "listen_addresses=", "-c", "fsync=off"]
        self._process = subprocess.Popen(
            [BINARIES / "postgres", "-D", self._data, *options],
            cwd=self.directory,
            env={"PATH": os.environ["PATH"]},  # without the DET_HOME of the test that starts it
            stderr=subprocess.DEVNULL,
            **self._user,
        )
        import psycopg

        deadline = time.monotonic() + 120
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    self.stop()
                    raise
                time.sleep(0.05)

    def stop(self) -> None:
        """Stop the server at once, ending all connections."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(120)

    def create_database(self) -> str:
        """Return the URL of a new, empty database."""
        name = f"det_{uuid.uuid4().hex}"
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql://postgres@/{name}?host={self.directory}"

    @property
    def _data(self) -> str:
        return f"{self.directory}/data"

    def connect(self) -> Any:
        """Return a new connection to the server's own database, in autocommit mode."""
        import psycopg

        return psycopg.connect(host=self.directory, user="postgres", dbname="postgres", autocommit=True)


def empty_database(url: str) -> None:
    """End all other sessions of a database and remove its contents.

    A new database would be 300 files more, which a busy disk deletes slowly.
    """
    with _only_session(url) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")


def delete_all_rows(url: str) -> None:
    """End all other sessions of a database, and delete all rows of a tracking store. New tables would take longer."""
    with _only_session(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        connection.execute("SET session_replication_role = replica")  # does not check foreign keys
        for (table,) in tables:
            if table != "det_schema":
                connection.execute(f'DELETE FROM "{table}"')
        connection.execute("SELECT setval(sequencename::regclass, start_value, false) FROM pg_sequences")


@contextmanager
def _only_session(url: str) -> Iterator[Any]:
    import psycopg

    others = "datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE {others}")
        yield connection


@contextmanager
def running_postgresql() -> Iterator[PostgreSQL]:
    """Run a server during the block. If PostgreSQL is missing, the test is skipped, and fails in CI."""
    if "CI" not in os.environ:
        pytest.importorskip("psycopg")
    if not (BINARIES / "postgres").exists():
        skip_or_fail_in_ci(f"no PostgreSQL in {BINARIES}")
    directory = tempfile.mkdtemp(prefix="det-pg-")
    try:
        server = PostgreSQL(directory)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory)
