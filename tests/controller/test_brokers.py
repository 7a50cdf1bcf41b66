"""Brokers: registration, heartbeats, fencing, and the effect on partitions."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.apis.broker_registration import BrokerRegistrationRequest
from ottla.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.apis.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.apis.update_features import UpdateFeaturesRequest
from ottla.types import Uuid
from tests.controller.harness import DIRECTORY_ID, Harness


def test_a_broker_is_fenced_until_it_has_caught_up() -> None:
    """Registration gives an epoch (its offset); a heartbeat that has replayed it unfences."""
    harness = Harness()
    harness.run_turn()
    epoch = harness.register()
    assert harness.image.cluster.brokers[1].fenced
    assert epoch == harness.image.offset_and_epoch.offset
    late = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=epoch,
        current_metadata_offset=epoch - 1,
        want_fence=False,
        want_shut_down=False,
    )
    answer = harness.ask(late)
    assert (answer.is_caught_up, answer.is_fenced) == (False, True)
    answer = harness.heartbeat()
    assert (answer.is_caught_up, answer.is_fenced) == (True, False)
    assert not harness.image.cluster.brokers[1].fenced


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID, "Expected cluster ID"),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION, "No directories specified in request"),
        ({"log_dirs": [Uuid()]}, ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in"),
        (
            {"log_dirs": [DIRECTORY_ID, DIRECTORY_ID]},
            ErrorCode.INVALID_REGISTRATION,
            "Duplicate directory ID in request",
        ),
        (
            {"features": []},
            ErrorCode.INVALID_REGISTRATION,
            "Request features do not contain 'metadata.version'",
        ),
        (
            {
                "features": [
                    BrokerRegistrationRequest.Feature(
                        name="metadata.version", min_supported_version=1, max_supported_version=20
                    )
                ]
            },
            ErrorCode.UNSUPPORTED_VERSION,
            (
                "Unable to register because the broker does not support finalized version 30 of "
                "metadata.version. The broker wants a version between 1 and 20, inclusive."
            ),
        ),
    ],
)
def test_refuses_registrations(fields: dict[str, Any], code: ErrorCode, text: str) -> None:
    """An invalid registration is refused in Kafka's words."""
    harness = Harness()
    harness.run_turn()
    with pytest.raises(KafkaError) as caught:
        harness.register(**fields)
    assert caught.value.code == code
    assert caught.value.message.startswith(text)


def test_a_second_broker_with_the_same_id_waits_for_the_session_to_end() -> None:
    """Another incarnation is refused while the session of the first one is valid."""
    harness = Harness().bring_up()
    with pytest.raises(KafkaError) as caught:
        harness.register()
    assert caught.value.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    harness.clock.ms += harness.config.broker_session_timeout_ms
    assert harness.register() > 0


def test_a_silent_broker_is_fenced() -> None:
    """After broker.session.timeout.ms without a heartbeat the broker loses its leaderships."""
    harness = Harness().bring_up()
    harness.create("t")
    harness.clock.ms += harness.config.broker_session_timeout_ms
    harness.node.tick(harness.clock.ms)
    harness.run_turn()
    assert harness.image.cluster.brokers[1].fenced
    partition = harness.image.topics.by_name["t"].partitions[0]
    assert (partition.leader, partition.isr) == (-1, ())
    assert partition.eligible_leader_replicas == partition.last_known_elr == (1,)


def test_controlled_shutdown_goes_step_by_step() -> None:
    """Leaderships move first, then the broker may stop; it remains an eligible leader."""
    harness = Harness().bring_up()
    harness.create("t")
    assert not harness.heartbeat(stop=True).should_shut_down
    assert harness.image.cluster.brokers[1].in_controlled_shutdown
    assert harness.image.topics.by_name["t"].partitions[0].leader == -1
    assert harness.heartbeat(stop=True).should_shut_down
    assert harness.image.cluster.brokers[1].fenced
    harness.register()
    harness.heartbeat()
    partition = harness.image.topics.by_name["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1,), 2)
    assert partition.eligible_leader_replicas == partition.last_known_elr == ()
    assert partition.leader_recovery_state == 0


def test_after_an_unclean_shutdown_the_last_leader_recovers() -> None:
    """A broker that may have lost records is no eligible leader, but the last known one."""
    harness = Harness().bring_up()
    harness.create("t")
    harness.clock.ms += harness.config.broker_session_timeout_ms
    harness.register(previous_broker_epoch=-1)
    partition = harness.image.topics.by_name["t"].partitions[0]
    assert (partition.leader, partition.isr) == (-1, ())
    assert partition.eligible_leader_replicas == ()
    assert partition.last_known_elr == (1,)
    harness.heartbeat()
    partition = harness.image.topics.by_name["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (1, (1,), 1)


def with_an_eligible_leader() -> Harness:
    """Return a cluster whose only broker is fenced, and an eligible leader of the topic t."""
    harness = Harness().bring_up()
    harness.create("t")
    harness.clock.ms += harness.config.broker_session_timeout_ms
    harness.node.tick(harness.clock.ms)
    harness.run_turn()
    assert harness.image.topics.by_name["t"].partitions[0].eligible_leader_replicas == (1,)
    return harness


def test_an_unclean_restart_leaves_the_eligible_leaders() -> None:
    """A fenced eligible broker that may have lost records is no longer eligible."""
    harness = with_an_eligible_leader()
    harness.register(previous_broker_epoch=-1)
    partition = harness.image.topics.by_name["t"].partitions[0]
    assert partition.eligible_leader_replicas == ()
    assert (partition.leader, partition.last_known_elr) == (-1, (1,))


def test_another_min_insync_replicas_clears_the_eligible_leaders() -> None:
    """Who was eligible by the old number may lack records by the new one (KAFKA-16540)."""
    harness = with_an_eligible_leader()
    struct = IncrementalAlterConfigsRequest.AlterConfigsResource
    change = struct.AlterableConfig(name="min.insync.replicas", config_operation=0, value="2")
    resource = struct(resource_type=2, resource_name="t", configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    epoch = harness.image.topics.by_name["t"].partitions[0].partition_epoch
    answer = harness.ask(request)
    assert answer.responses[0].error_code == ErrorCode.NONE
    partition = harness.image.topics.by_name["t"].partitions[0]
    assert (partition.eligible_leader_replicas, partition.partition_epoch) == ((), epoch + 1)


def test_producer_ids_come_in_blocks_and_never_twice() -> None:
    """Each block has 1000 ids; a stale broker epoch gets none; a restart continues after them."""
    harness = Harness().bring_up()
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=harness.broker_epoch)
    first = harness.ask(request)
    second = harness.ask(request)
    assert (first.producer_id_start, first.producer_id_len) == (0, 1000)
    assert second.producer_id_start == 1000
    stale = AllocateProducerIdsRequest(broker_id=1, broker_epoch=harness.broker_epoch - 1)
    with pytest.raises(KafkaError) as caught:
        harness.ask(stale)
    assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH
    harness.node.stop()
    harness.start()
    harness.bring_up()
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=harness.broker_epoch)
    third = harness.ask(request)
    assert third.producer_id_start == 2000


def test_an_unregistered_broker_is_gone() -> None:
    """Unregistering takes the broker out of the image; doing it twice is an error."""
    harness = Harness().bring_up()
    request = UnregisterBrokerRequest(broker_id=1)
    assert harness.ask(request).error_code == 0
    assert 1 not in harness.image.cluster.brokers
    with pytest.raises(KafkaError) as caught:
        harness.ask(request)
    assert caught.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert caught.value.message == "Broker ID 1 is not currently registered"


def test_38_a_registration_is_checked_against_features_that_are_being_raised() -> None:
    """KAFKA-18844: not against those that were committed when it came."""
    harness = Harness().bring_up()
    name = "eligible.leader.replicas.version"
    update = UpdateFeaturesRequest.FeatureUpdateKey
    lower = update(feature=name, max_version_level=0, upgrade_type=2)
    assert harness.ask(UpdateFeaturesRequest(feature_updates=[lower])).error_code == 0
    higher = update(feature=name, max_version_level=1, upgrade_type=1)
    raised = harness.send(UpdateFeaturesRequest(feature_updates=[higher]))
    assert not raised.done
    kind = BrokerRegistrationRequest.Feature
    features = [
        kind(name=one, min_supported_version=levels.low, max_supported_version=levels.high)
        for one, levels in SUPPORTED_FEATURES.items()
        if one != name
    ]
    with pytest.raises(KafkaError) as caught:
        harness.register(broker_id=2, features=features, log_dirs=[Uuid(bytes([9] * 16))])
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert name in caught.value.message
    assert raised.value.error_code == 0
