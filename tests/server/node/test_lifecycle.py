"""A broker's heartbeats until the controller unfences it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ottla.config.broker import parse_broker_config
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import MetadataImage
from ottla.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.apis.broker_registration import BrokerRegistrationResponse
from ottla.purgatory.pending import Pending
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.server.node.lifecycle import BrokerLifecycle
from ottla.types import OffsetAndEpoch, Uuid
from tests.controller.harness import PROPERTIES, HandClock
from tests.coordinator.harness import loop_of

if TYPE_CHECKING:
    import pytest


class Channel:
    """Keeps heartbeats until the test answers them: as slow as a remote controller may be."""

    def __init__(self) -> None:
        self.sent: list[BrokerHeartbeatRequest] = []
        self._open: list[Pending[Any]] = []

    def send(self, request: Any, _requester: object = None) -> Pending[Any]:
        self.sent.append(request)
        self._open.append(Pending())
        return self._open[-1]

    def answer(self, *, is_fenced: bool) -> None:
        self._open.pop(0).complete(
            BrokerHeartbeatResponse(is_fenced=is_fenced, should_shut_down=False)
        )

    def refuse_registration(self) -> None:
        code = ErrorCode.DUPLICATE_BROKER_REGISTRATION
        self._open.pop().complete(BrokerRegistrationResponse(error_code=code))

    def fail(self, code: ErrorCode = ErrorCode.NOT_CONTROLLER) -> None:
        self._open.pop(0).fail(KafkaError(code))

    def let_leave(self) -> None:
        self._open.pop(0).complete(BrokerHeartbeatResponse(is_fenced=True, should_shut_down=True))


class Fenced:
    """A registered broker that has asked once to be unfenced."""

    def __init__(self) -> None:
        self.channel, self.image = Channel(), MetadataImage()
        self.clock = HandClock(1000)
        self.timer = TimingWheel(1000)
        self.untold: list[KafkaError] = []
        self.lifecycle = BrokerLifecycle(
            parse_broker_config(PROPERTIES),
            self.channel,
            self.image,
            incarnation_id=Uuid(bytes(16)),
            cordoned=[],
            loop=loop_of(self.timer, self.clock),
            on_report_timeout=self.untold.append,
        )
        self.unfenced = self.lifecycle.start_heartbeats()

    def publish(self, offset: int) -> None:
        self.image.offset_and_epoch = OffsetAndEpoch(offset, 1)
        self.lifecycle.metadata_published()

    def pass_time(self, elapsed_ms: int) -> None:
        self.clock.ms += elapsed_ms
        self.timer.advance(self.clock.ms)

    @property
    def reported(self) -> list[int]:
        return [one.current_metadata_offset for one in self.channel.sent]


def test_a_fenced_broker_asks_again_when_metadata_is_published() -> None:
    """No heartbeat in between, and none after the answer that unfences it."""
    broker = Fenced()
    broker.channel.answer(is_fenced=True)
    broker.pass_time(1500)
    assert len(broker.reported) == 1
    broker.publish(7)
    assert broker.reported[1:] == [7]
    broker.publish(8)
    broker.channel.answer(is_fenced=False)
    assert broker.unfenced.done
    broker.publish(9)
    assert len(broker.reported) == 2


def test_metadata_that_came_before_the_answer_is_reported_at_once() -> None:
    """The controller answered for the offset that it was sent."""
    broker = Fenced()
    broker.publish(7)
    broker.channel.answer(is_fenced=True)
    assert broker.reported[1:] == [7]
    broker.channel.answer(is_fenced=True)
    assert len(broker.reported) == 2


def test_heartbeats_go_on_at_their_interval_without_a_controller() -> None:
    """A failed heartbeat is repeated with the next one; a stopped broker sends none."""
    broker = Fenced()
    broker.channel.fail()
    broker.pass_time(2500)
    assert len(broker.reported) == 2
    broker.lifecycle.close()
    broker.pass_time(10_000)
    assert len(broker.reported) == 2


FAILED = Uuid(b"failed".ljust(16, b"."))


def test_a_failed_directory_is_reported_at_once_and_with_every_heartbeat() -> None:
    """The broker goes on: the controller knows."""
    broker = Fenced()
    broker.channel.answer(is_fenced=False)
    broker.lifecycle.broker_epoch = 5
    broker.lifecycle.directory_failed(FAILED)
    broker.lifecycle.directory_failed(FAILED)
    assert [one.offline_log_dirs for one in broker.channel.sent] == [[], [FAILED]]
    broker.channel.answer(is_fenced=False)
    broker.pass_time(40_000)
    assert broker.channel.sent[-1].offline_log_dirs == [FAILED]
    assert broker.untold == []


def test_a_failed_directory_that_cannot_be_reported_ends_the_broker() -> None:
    """After log.dir.failure.timeout.ms, 30 s by default; an earlier heartbeat does not count."""
    broker = Fenced()
    broker.lifecycle.broker_epoch = 5
    broker.lifecycle.directory_failed(FAILED)
    broker.channel.answer(is_fenced=False)
    broker.channel.fail()
    broker.pass_time(29_000)
    assert broker.untold == []
    broker.pass_time(2_000)
    assert [one.code for one in broker.untold] == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_the_session_of_an_earlier_process_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One warning; the registrations that follow are refused in silence until one succeeds."""
    broker = Fenced()
    broker.lifecycle.register(
        {}, cluster_id="c", features={}, directory_ids=[], previous_broker_epoch=-1
    )
    with caplog.at_level(logging.DEBUG, "ottla"):
        for _ in range(3):
            broker.channel.refuse_registration()
            broker.pass_time(200)
    refused = [one for one in caplog.records if "still has a session" in one.message]
    assert [one.levelname for one in refused] == ["WARNING", "DEBUG", "DEBUG"]


def test_a_controlled_shutdown_goes_on_when_the_controller_is_slow() -> None:
    """It may be electing thousands of leaders; who waits for the shutdown has a limit."""
    broker = Fenced()
    broker.channel.answer(is_fenced=False)
    left = broker.lifecycle.shut_down()
    broker.channel.fail(ErrorCode.REQUEST_TIMED_OUT)
    assert not left.done
    broker.channel.let_leave()
    assert left.done
    assert left.error is None


def test_a_controlled_shutdown_fails_without_a_controller() -> None:
    """Its partitions are led elsewhere once its session is over."""
    broker = Fenced()
    broker.channel.answer(is_fenced=False)
    left = broker.lifecycle.shut_down()
    broker.channel.fail()
    assert left.error is not None
