"""Several brokers register: incarnations, features, directories, racks; other controllers too."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.broker_registration import BrokerRegistrationRequest
from ottla.protocol.apis.controller_registration import ControllerRegistrationRequest
from ottla.types import Uuid
from tests.controller.brokers import Brokers, directory_of, registration

Feature = BrokerRegistrationRequest.Feature


def _refusal(brokers: Brokers, request: Any) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        brokers.ask(request)
    return caught.value


def test_a_directory_belongs_to_one_broker() -> None:
    """Another broker that has it was copied from the first one."""
    brokers = Brokers(2)
    error = _refusal(brokers, registration(3, 1, log_dirs=[directory_of(3), directory_of(2)]))
    assert error.code == ErrorCode.INVALID_REGISTRATION
    assert error.message == f"Broker 2 is already registered with directory {directory_of(2)}"


def test_a_feature_that_is_not_finalized_must_be_supported_at_level_0() -> None:
    """A broker that demands it cannot serve the cluster as it is."""
    brokers = Brokers(1)
    metadata = Feature(name="metadata.version", min_supported_version=7, max_supported_version=30)
    new = Feature(name="new.version", min_supported_version=1, max_supported_version=2)
    error = _refusal(brokers, registration(2, 1, features=[metadata, new]))
    assert (error.code, error.message) == (
        ErrorCode.UNSUPPORTED_VERSION,
        (
            "Unable to register because the broker does not support finalized version 0 of "
            "new.version. The broker wants a version between 1 and 2, inclusive."
        ),
    )
    missing = _refusal(brokers, registration(2, 1, features=[metadata]))
    assert missing.message.endswith("The broker wants a version between 0 and 0, inclusive.")


def test_a_second_incarnation_waits_for_the_first_ones_session() -> None:
    """The first heartbeat starts it; a broker that was told to stop has none."""
    brokers = Brokers(2)
    brokers.ask(registration(3, 1))
    brokers.ask(registration(3, 2))
    brokers.epochs[3] = brokers.image.cluster.brokers[3].broker_epoch
    brokers.beat(3)
    assert _refusal(brokers, registration(3, 3)).code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert brokers.beat(3, stop=True).should_shut_down
    assert brokers.ask(registration(3, 3)).broker_epoch > brokers.epochs[3]


def test_the_same_incarnation_keeps_its_epoch_and_state() -> None:
    """A repeated registration amends listeners and rack."""
    brokers = Brokers(2)
    epoch = brokers.epochs[2]
    assert brokers.ask(registration(2, 1, rack="north")).broker_epoch == epoch
    broker = brokers.image.cluster.brokers[2]
    assert (broker.rack, broker.fenced) == ("north", False)


def test_a_fence_and_a_stop_at_once_are_granted_at_once() -> None:
    """The broker does not wait until its leaders have moved."""
    brokers = Brokers(2)
    brokers.assigned("t", [2, 1])
    answer = brokers.beat(2, fence=True, stop=True)
    assert (answer.is_fenced, answer.should_shut_down) == (True, True)
    assert brokers.partition("t").leader == 1


def test_old_incarnations_are_stale() -> None:
    """Heartbeats of unknown brokers too."""
    brokers = Brokers(2)
    old = brokers.epochs[2]
    brokers.join(2)
    brokers.epochs[2] = old
    with pytest.raises(KafkaError) as caught:
        brokers.beat(2)
    assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH
    brokers.unregister(2)
    with pytest.raises(KafkaError) as caught:
        brokers.beat(2)
    assert caught.value.message == "No broker registration found for broker id 2"


def test_another_controller_registers() -> None:
    """Its addresses and features are in the image (KIP-919)."""
    brokers = Brokers(1)
    struct = ControllerRegistrationRequest
    request = struct(
        controller_id=7,
        incarnation_id=Uuid(b"c" * 16),
        zk_migration_ready=True,
        listeners=[struct.Listener(name="CONTROLLER", host="c7", port=9093, security_protocol=0)],
        features=[
            struct.Feature(
                name="metadata.version", min_supported_version=7, max_supported_version=9
            )
        ],
    )
    assert brokers.ask(request).error_code == 0
    found = brokers.image.cluster.controllers[7]
    assert (found.incarnation_id, found.zk_migration_ready) == (Uuid(b"c" * 16), False)
    assert (found.listeners["CONTROLLER"].host, found.listeners["CONTROLLER"].port) == ("c7", 9093)
    assert 9 in found.features["metadata.version"]
