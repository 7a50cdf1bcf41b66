"""The cells of the login matrix that real Kafka can be asked: a client meets the same."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest
from tests.conformance.kafka import RealKafka
from tests.ports import free_ports
from tests.server.requests.untrusted_clients import Peer
from tests.server.security import scram_fields
from tests.server.security.login_cells import CELLS, KAFKAS, met, run_cells, settle
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
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.conformance.kafka import Kafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]
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


@pytest.fixture(scope="module")
def site(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Run real Kafka with the users of all cells."""
    users = [cell.user for cell in ASKED if cell.mechanism == "PLAIN"]
    path = tmp_path_factory.mktemp("kafka")
    with (
        pytest.MonkeyPatch.context() as patch,
        kafka_site(kafka, path, users, patch) as running,
    ):
        yield running


def test_kafka_gives_the_same_outcomes(site: Site) -> None:
    """Each cell, but for those of Kerberos and of other listeners of brokers."""
    found = run_cells(site, ASKED)
    expected = {cell: KAFKAS.get((cell.mechanism, cell.case), cell.expected) for cell in ASKED}
    assert {cell: got for cell, got in found.items() if got != expected[cell]} == {}


def asking(site: Site) -> Callable[[bytes], Any]:
    """Return what sends messages of a new login; its connection ends with it."""
    peer = Peer(site.addresses["CLIENTS_SASL_PLAINTEXT"])
    peer.ask(SaslHandshakeRequest(mechanism=scram_fields.MECHANISM), 1)

    def ask(token: bytes) -> tuple[int, str | None, bytes]:
        answer = peer.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        return answer.error_code, answer.error_message, answer.auth_bytes

    return ask


def test_kafka_refuses_the_same_fields_of_scram(site: Site) -> None:
    """Each field of the client's messages, but for what Kafka does not look at."""
    site.set_password(scram_fields.USER, scram_fields.MECHANISM)
    settle(site)
    first, final = scram_fields.first_outcome, scram_fields.final_outcome
    for message, expected in scram_fields.FIRST.items():
        assert met(partial(first, asking(site), message)) == expected, message
    for change, expected in (scram_fields.FINAL | scram_fields.KAFKAS).items():
        assert met(partial(final, asking(site), *change)) == expected, change
