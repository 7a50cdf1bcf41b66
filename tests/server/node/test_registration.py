"""A controller registers until its own image shows its incarnation (KIP-919)."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.broker import ControllerRegistration, ListenerAddress, SupportedLevels
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import METADATA_VERSION
from ottla.metadata.framing import MessageAndVersion
from ottla.metadata.image import MetadataImage
from ottla.protocol.apis.controller_registration import ControllerRegistrationResponse
from ottla.protocol.records.metadata import FeatureLevelRecord
from ottla.purgatory.pending import Pending
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.server.node.lifecycle import ControllerRegistrationManager
from ottla.types import OffsetAndEpoch, Uuid
from tests.controller.harness import HandClock
from tests.coordinator.harness import loop_of

if TYPE_CHECKING:
    from ottla.protocol.apis.controller_registration import ControllerRegistrationRequest
    from ottla.protocol.schema import Struct

OLD, NEW = (Uuid(text.ljust(16, b".")) for text in (b"old", b"new"))


class Channel:
    """Keeps the requests until the test answers them."""

    def __init__(self) -> None:
        self.sent: list[ControllerRegistrationRequest] = []
        self._open: list[Pending[Any]] = []
        self.is_closed = False

    def send(self, request: Any) -> Pending[Any]:
        self.sent.append(request)
        self._open.append(Pending())
        return self._open[-1]

    def answer(self, code: ErrorCode = ErrorCode.NONE) -> None:
        response = ControllerRegistrationResponse(error_code=code, error_message=None)
        self._open.pop(0).complete(response)

    def fail(self) -> None:
        self._open.pop(0).fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))

    def close(self) -> None:
        self.is_closed = True
        for one in self._open:
            one.fail(KafkaError(ErrorCode.NOT_CONTROLLER))


def _registration(incarnation_id: Uuid) -> ControllerRegistration:
    return ControllerRegistration(
        1,
        incarnation_id,
        zk_migration_ready=False,
        listeners={"CONTROLLER": ListenerAddress("host", 9093, 0)},
        features={"group.version": SupportedLevels(0, 1)},
    )


class Standby:
    """Controller 1, of which an earlier process may have registered."""

    def __init__(self) -> None:
        self.channel, self.image = Channel(), MetadataImage()
        self.clock, self.timer = HandClock(1000), TimingWheel(1000)
        self.manager = ControllerRegistrationManager(
            _registration(NEW),
            self.image,
            self.channel,  # type: ignore[arg-type] # a part of it
            loop=loop_of(self.timer, self.clock),
            rng=Random(1),
        )

    def publish(self, *records: Struct) -> None:
        delta = MetadataDelta()
        position = OffsetAndEpoch(self.image.offset_and_epoch.offset + 1, 1)
        self.image.apply([MessageAndVersion(one, 0) for one in records], position, delta)
        self.manager.metadata_changed(delta, self.image)

    def publish_version(self, level: int = 15) -> None:
        self.publish(FeatureLevelRecord(name=METADATA_VERSION, feature_level=level))

    def publish_registration(self, incarnation_id: Uuid) -> None:
        self.publish(_registration(incarnation_id).to_record())

    def pass_time(self, elapsed_ms: int) -> None:
        self.clock.ms += elapsed_ms
        self.timer.advance(self.clock.ms)

    def pause_ms(self) -> int:
        """Let time pass until the next request; return how much."""
        count, begin_ms = len(self.channel.sent), self.clock.ms
        while len(self.channel.sent) == count:
            self.pass_time(1)
        return self.clock.ms - begin_ms


def test_a_controller_registers_its_listeners_and_features_once() -> None:
    """One request; the record that it made ends the matter."""
    one = Standby()
    one.publish_version()
    (request,) = one.channel.sent
    (listener,), (feature,) = request.listeners, request.features
    assert (request.controller_id, request.incarnation_id) == (1, NEW)
    assert not request.zk_migration_ready
    assert (listener.name, listener.host, listener.port) == ("CONTROLLER", "host", 9093)
    assert listener.security_protocol == 0
    assert (feature.name, feature.min_supported_version, feature.max_supported_version) == (
        "group.version",
        0,
        1,
    )
    one.publish_registration(NEW)
    one.channel.answer()
    one.publish_version(16)
    one.pass_time(1_000_000)
    assert one.manager.is_registered
    assert len(one.channel.sent) == 1
    assert len(one.timer) == 0


def test_an_old_metadata_version_knows_no_registrations() -> None:
    """Until it is raised to 3.7-IV0."""
    one = Standby()
    one.publish_version(14)
    assert not one.channel.sent
    one.publish_version(15)
    assert len(one.channel.sent) == 1


def test_the_registration_of_another_process_is_replaced() -> None:
    """That of an earlier process, and of one that took the place of this one."""
    one = Standby()
    one.publish(
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=30), _registration(OLD).to_record()
    )
    assert not one.manager.is_registered
    one.publish_registration(NEW)
    one.channel.answer()
    one.publish_registration(OLD)
    assert [request.incarnation_id for request in one.channel.sent] == [NEW, NEW]


def test_only_one_request_is_under_way() -> None:
    """Other changes wait for the answer, and other controllers' registrations change nothing."""
    one = Standby()
    one.publish_version()
    one.publish_version(16)
    one.publish_registration(OLD)
    assert len(one.channel.sent) == 1
    one.channel.answer()
    one.publish(_registration(OLD)._replace(controller_id=2).to_record())
    assert len(one.channel.sent) == 1


def test_failures_are_repeated_after_pauses_that_double() -> None:
    """From 100 ms to two minutes, 2 % more or less; an answer without an error ends the series."""
    one = Standby()
    one.publish_version()
    pauses = []
    for _ in range(14):
        one.channel.fail()
        pauses.append(one.pause_ms())
    expected = [min(100 * 2**number, 120_000) for number in range(14)]
    for pause, exact in zip(pauses, expected, strict=True):
        assert 0.98 * exact - 1 <= pause <= min(1.02 * exact, 120_000) + 1
    one.channel.answer()
    one.publish_version(16)
    one.channel.answer(ErrorCode.NOT_CONTROLLER)
    assert one.pause_ms() <= 102


def test_a_change_in_a_pause_sends_at_once_and_the_next_pause_replaces_it() -> None:
    """At most one timer is set."""
    one = Standby()
    one.publish_version()
    for level in (16, 17, 18):
        one.channel.fail()
        one.publish_version(level)
    one.channel.fail()
    assert len(one.channel.sent) == 4
    assert len(one.timer) == 1


def test_a_closed_manager_sends_no_more() -> None:
    """Neither after the failure that closing makes nor after a change."""
    one = Standby()
    one.publish_version()
    one.manager.close()
    one.publish_version(16)
    one.pass_time(1_000_000)
    assert one.channel.is_closed
    assert len(one.channel.sent) == 1
    assert len(one.timer) == 0
