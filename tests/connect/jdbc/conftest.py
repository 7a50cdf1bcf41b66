"""Servers of databases for the tests of this directory; tasks end with their test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.connect.jdbc.databases import MariaDbServer, PostgreSqlServer, Server
from tests.connect.jdbc.tables import (
    TASKS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(name="servers", scope="module")
def _servers() -> Iterator[dict[str, Server]]:
    servers: dict[str, Server] = {}
    yield servers
    for server in servers.values():
        server.close()


@pytest.fixture(name="server")
def _server(request: pytest.FixtureRequest, servers: dict[str, Server], tmp_path: Path) -> Server:
    kind: str = request.param
    if kind == "sqlite":
        return Server("sqlite", f"jdbc:sqlite:{tmp_path / 'file.db'}")
    if kind not in servers:
        servers[kind] = PostgreSqlServer() if kind == "postgresql" else MariaDbServer()
    server = servers[kind]
    if kind == "postgresql":
        server.sql("DROP SCHEMA public CASCADE;\nCREATE SCHEMA public")
    else:
        server.sql("DROP DATABASE test;\nCREATE DATABASE test")
    return server


@pytest.fixture(autouse=True)
def _stopped() -> Iterator[None]:
    """Stop the tasks of the test, whatever became of it."""
    yield
    for task in TASKS:
        task.stop()
    TASKS.clear()
