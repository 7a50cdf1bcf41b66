"""The cells of the login matrix that real Kafka can be asked: a client meets the same."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.conformance.kafka import RealKafka
from tests.ports import free_ports
from tests.server.security.login_cells import CELLS, KAFKAS, run_cells
from tests.server.security.login_sites import (
    ALLOWED_FILES,
    ALLOWED_URLS,
    HOST,
    PASSWORDS,
    SESSION_S,
    Site,
    listeners,
    node_settings,
    write_files,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.conformance.kafka import Kafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(200)]
BROKERS = "SASL_SSL"
ASKED = tuple(
    cell
    for cell in CELLS
    if cell.mechanism != "GSSAPI" and (cell.role != "BROKERS" or cell.protocol == BROKERS)
)
"""Real Kerberos is `scripts/kerberos.py`'s; a node's brokers have one listener."""


@contextmanager
def kafka_site(
    kafka: Kafka, path: Path, users: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    """Run real Kafka."""
    write_files(path)
    names = listeners(BROKERS)
    addresses = dict(zip(names, (f"{HOST}:{port}" for port in free_ports(len(names))), strict=True))
    settings = node_settings(path, BROKERS, users, (*PASSWORDS, "OAUTHBEARER"))
    settings["listeners"] = ",".join(f"{name}://{where}" for name, where in addresses.items())
    allowed = {ALLOWED_FILES: path / "keys", ALLOWED_URLS: (path / "keys").as_uri()}
    options = (f"-D{name}={value}" for name, value in allowed.items())
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", " ".join(options))
    real = RealKafka(kafka, path, settings)
    real.port = int(addresses["CLIENTS_PLAINTEXT"].rpartition(":")[2])
    real.properties["controller.quorum.bootstrap.servers"] = addresses["CONTROLLERS_SASL_SSL"]
    with ExitStack() as stack:
        stack.callback(real.kill)
        real.format()
        real.start()
        site = Site(
            path,
            addresses,
            users,
            now_ms=lambda: time.time_ns() // 1_000_000,
            pass_time=lambda: time.sleep(SESSION_S + 1),
        )
        stack.callback(site.admin.close)
        yield site


def test_kafka_gives_the_same_outcomes(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each cell, but for those of Kerberos and of other listeners of brokers."""
    users = [cell.user for cell in ASKED if cell.mechanism == "PLAIN"]
    with kafka_site(kafka, tmp_path, users, monkeypatch) as site:
        found = run_cells(site, ASKED)
    expected = {cell: KAFKAS.get((cell.mechanism, cell.case), cell.expected) for cell in ASKED}
    assert {cell: got for cell, got in found.items() if got != expected[cell]} == {}
