"""The log and the errors of an outage: one warning, its end, and the likely cause.

Kafka: the warnings of org.apache.kafka.clients.{NetworkClient, Metadata}.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clients.blocking import Consumer
from ottla.clients.connection_errors import connect_error, with_hint
from ottla.clients.coordinator import CoordinatorLookup
from ottla.clients.login import make_login
from ottla.clients.outages import ClientTrace, Outages
from ottla.diagnosis.advice import Situation
from ottla.errors import ErrorCode, IllegalSaslStateError, KafkaError, SslAuthenticationError
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.sasl_handshake import SaslHandshakeResponse
from ottla.types import TopicPartition
from tests.clients.simulated import (
    LOSE_REQUEST,
    FakeCluster,
    Simulation,
    consumer_settings,
    producer_settings,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clients.client import Client
    from ottla.testing.kafka import Kafka

START = (
    "is a broker running there? Start one with `ottla server-start`, or correct bootstrap_servers"
)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Give the warnings so far."""
    return lambda: [one.getMessage() for one in caplog.records if one.name == "ottla.clients"]


def _simulation(**settings: object) -> Simulation:
    cluster = FakeCluster(1)
    cluster.create("t")
    return Simulation(cluster, producer_settings(client_id="p", **settings))


def test_an_address_warns_once_at_the_first_failure_and_once_at_its_end(
    lines: Callable[[], list[str]],
) -> None:
    """A thousand attempts in between say nothing."""
    sim = _simulation()
    sim.cluster.down.add(1)
    sim.client.refresh()
    sim.run_for(900)
    first = f"[Producer clientId=p] broker:9001: broker:9001: Connection refused; {START}."
    first = first.replace("broker:9001: broker:9001", "broker:9001")
    assert lines() == [f"{first} Trying again."]
    sim.run_for(60_000)
    sim.cluster.down.clear()
    sim.run(lambda: sim.client.is_reachable)
    assert len(lines()) == 2
    assert lines()[1].startswith("[Producer clientId=p] broker:9001: works again after 6")
    assert lines()[1].endswith(f" s (the failure was: Connection refused; {START}).")


def test_a_rejected_login_is_not_tried_again(lines: Callable[[], list[str]]) -> None:
    """The warning does not say so."""
    sim = _simulation()
    refused = SslAuthenticationError("the certificate was not accepted")
    sim.client.refresh()
    sim.run_for(1)
    for key in list(sim.open_connections):
        sim.client.disconnected(key, refused, sim.now_ms)
    assert sim.client.fatal is not None
    text = "broker:9001: the certificate was not accepted. Calls fail with this."
    assert lines() == [f"[Producer clientId=p] {text}"]


def test_a_broker_that_closes_idle_connections_says_nothing(
    lines: Callable[[], list[str]],
) -> None:
    """Nothing was lost."""
    sim = _simulation()
    sim.run(lambda: sim.client.is_reachable)
    for key in list(sim.open_connections):
        sim.drop(key)
    sim.client.refresh()
    sim.run_for(1000)
    assert lines() == []


def test_a_listener_that_wants_a_login_is_named(lines: Callable[[], list[str]]) -> None:
    """A SASL listener closes the connection after the first request without a login."""
    sim = _simulation()
    sim.cluster.faults[MetadataRequest] = [LOSE_REQUEST] * 20
    sim.client.refresh()
    sim.run_for(900)
    assert len(lines()) == 1
    assert "the listener may require a SASL login, check security_protocol" in lines()[0]
    assert "may require a SASL login" in str(sim.client.unreachable())


def test_a_missing_topic_is_warned_of_within_a_second(lines: Callable[[], list[str]]) -> None:
    """Not at once: a topic that is just being created needs no warning."""
    sim = _simulation()
    sim.client.metadata.add_topics(["new", "missing"])
    sim.run(lambda: sim.client.is_reachable)
    sim.cluster.create("new")
    sim.run_for(900)
    cause = "it does not exist (UNKNOWN_TOPIC_OR_PARTITION): create it, or allow its auto-creation"
    assert lines() == [f"[Producer clientId=p] topic 'missing': {cause}. Trying again."]
    text = str(sim.client.timeout_error("Topic missing not present in metadata after 1 ms"))
    assert text == f"Topic missing not present in metadata after 1 ms: topic 'missing': {cause}"
    sim.cluster.create("missing")
    sim.run(lambda: sim.client.metadata.partition_count("missing"))
    assert lines()[1].startswith("[Producer clientId=p] topic 'missing': works again after ")


def test_a_missing_topic_that_is_no_longer_used_is_no_outage() -> None:
    """The next error does not name it."""
    sim = _simulation()
    sim.client.metadata.add_topics(["missing"])
    sim.run_for(900)
    sim.client.metadata.set_topics(["t"])
    sim.client.refresh()
    sim.run_for(5_000)
    assert sim.client.outages.causes() == ""


def test_an_unknown_coordinator_is_warned_of_within_a_second(
    lines: Callable[[], list[str]],
) -> None:
    """With what keeps brokers from having one."""
    cluster = FakeCluster(1)
    sim = Simulation(cluster, consumer_settings(client_id="c", group_id="g"))

    def refuse(_request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        found = FindCoordinatorResponse.Coordinator(
            key="g", node_id=-1, host="", port=-1, error_code=code, error_message=""
        )
        return FindCoordinatorResponse(coordinators=[found])

    cluster.faults[FindCoordinatorRequest] = [refuse] * 4
    coordinator = CoordinatorLookup(sim.client, "g")
    sim.client.register(coordinator)
    sim.run_for(900)
    assert lines() == [
        (
            "[Consumer clientId=c, groupId=g] the coordinator of group 'g': "
            "COORDINATOR_NOT_AVAILABLE: The coordinator is not available; the brokers may be "
            "unable to create __consumer_offsets (is offsets.topic.replication.factor above the "
            "number of brokers?). Trying again."
        )
    ]
    sim.run(lambda: coordinator.known)
    assert "the coordinator of group 'g': works again after " in lines()[1]


def test_a_login_that_the_listener_does_not_ask_for_is_named() -> None:
    """Kafka's text for it says nothing of the setting."""
    account = {"sasl_username": "u", "sasl_password": "p", "security_protocol": "SASL_PLAINTEXT"}
    login = make_login(producer_settings(sasl_mechanism="PLAIN", **account))
    assert login.next_request(None)
    refused = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    with pytest.raises(IllegalSaslStateError, match="check security_protocol"):
        login.next_request(refused)


def test_causes_are_few() -> None:
    """The text of an exception stays readable when a whole cluster is away."""
    outages = Outages(ClientTrace(producer_settings()))
    for node_id in range(9):
        outages.report(f"h{node_id}:1", "refused", 0)
    assert outages.causes() == "h0:1: refused; h1:1: refused; h2:1: refused"


@pytest.mark.parametrize(
    ("error", "uses_tls", "text", "is_fatal"),
    [
        (ConnectionRefusedError(111, ""), True, "Connection refused", False),
        (
            ConnectionResetError(104, ""),
            True,
            "the TLS handshake failed (Connection reset by peer): the listener may be a PLAINTEXT",
            False,
        ),
        (
            ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"),
            True,
            "the TLS handshake failed (",
            True,
        ),
        (
            ssl.SSLEOFError(8, "EOF occurred"),
            True,
            "the TLS handshake failed (the peer closed the connection)",
            False,
        ),
        (
            ssl.SSLCertVerificationError(1, "certificate verify failed"),
            True,
            "the broker's certificate was not accepted (",
            True,
        ),
        (ValueError("label empty or too long"), False, "label empty or too long", False),
    ],
)
def test_the_error_of_a_connect_names_the_likely_cause(
    error: Exception,
    uses_tls: bool,  # noqa: FBT001 - a parameter of the table
    text: str,
    is_fatal: bool,  # noqa: FBT001 - as above
) -> None:
    """What waiting cannot heal is an SslAuthenticationError: it ends calls, as in Kafka."""
    found = connect_error(error, uses_tls=uses_tls)
    assert found.message.startswith(text)
    assert isinstance(found, SslAuthenticationError) is is_fatal


def test_a_peer_that_does_not_fit_ends_calls_until_it_does() -> None:
    """The error names the address, and goes away with the first accepted connection."""
    sim = _simulation()
    client: Client = sim.client
    answers: list[Any] = []

    def fail(key: Any, _host: str, _port: int) -> None:
        answers.append(key)
        error = SslAuthenticationError("the listener speaks TLS")
        sim._later(lambda: client.disconnected(key, error, sim.now_ms))

    real, sim.open = sim.open, fail  # type: ignore[method-assign, assignment]  # the peer speaks TLS
    pending = client.refresh()
    sim.run(lambda: pending.done)
    assert isinstance(pending.error, KafkaError)
    assert str(pending.error) == "broker:9001: the listener speaks TLS"
    sim.open = real  # type: ignore[method-assign]  # the listener was corrected
    sim.run(lambda: client.is_reachable)
    assert client.pending_error() is None


def test_a_cause_with_advice_gets_no_other() -> None:
    """A user with the wrong protocol need not start a broker."""
    unknown = connect_error(socket.gaierror(-2, "Name or service not known"), uses_tls=False)
    assert (
        with_hint(unknown.message, Situation.NOTHING_LISTENS)
        == "Name or service not known: check the host name"
    )
    hinted = with_hint("Connection refused", Situation.NOTHING_LISTENS)
    assert hinted.startswith("Connection refused; is a broker running there? Start one with")
    assert connect_error(ConnectionResetError(), uses_tls=False).message == "ConnectionResetError"


def test_tls_to_a_plaintext_listener_is_named(kafka: Kafka, lines: Callable[[], list[str]]) -> None:
    """The broker closes the connection; the client says what it may be."""
    with Consumer(
        "t", bootstrap_servers=kafka.bootstrap, security_protocol="SSL", group_id="g"
    ) as consumer:
        while not lines():
            assert consumer.poll(0.1) == []
        with pytest.raises(TimeoutError, match="the listener may be a PLAINTEXT one"):
            consumer.committed([TopicPartition("t", 0)], timeout=0.2)
    assert len(lines()) == 1
    assert "the listener may be a PLAINTEXT one, check security_protocol" in lines()[0]
