"""A broker's standing with the controller: registration, heartbeats, fencing.

Kafka: kafka.server.BrokerLifecycleManager.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.apis.broker_registration import BrokerRegistrationRequest
from ottla.purgatory.pending import Pending
from ottla.server.system.timers import next_aligned_tick

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.metadata.broker import FeatureRange
    from ottla.metadata.image.image import MetadataImage
    from ottla.protocol.apis.broker_heartbeat import BrokerHeartbeatResponse
    from ottla.protocol.apis.broker_registration import BrokerRegistrationResponse
    from ottla.purgatory.timing_wheel import TimingWheel
    from ottla.server.controller.channel import ControllerChannel
    from ottla.types import Uuid

log = logging.getLogger("ottla.node")
_PLAINTEXT: Final = 0
_REGISTER_AGAIN_MS: Final = 100
_LEAVE_AGAIN_MS: Final = 50
_FINAL: Final = (
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_REGISTRATION,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
"""What no repetition of a registration changes."""


class BrokerLifecycle:
    """Registers once, then sends a heartbeat every broker.heartbeat.interval.ms."""

    def __init__(
        self,
        config: BrokerConfig,
        controller: ControllerChannel,
        image: MetadataImage,
        *,
        incarnation_id: Uuid,
        cordoned: list[Uuid],
        clock: Clock,
        timer: TimingWheel,
        on_untold: Callable[[KafkaError], None],
    ) -> None:
        """Take the image that this broker has applied, and its cordoned directories' ids.

        on_untold(error) is called when a failed directory could not be reported in time.
        """
        self._config = config
        self._controller = controller
        self._image = image
        self._incarnation_id = incarnation_id
        self._clock = clock
        self._timer = timer
        self._is_stopped = False
        self._cordoned: list[Uuid] | None = cordoned or None
        """None until any directory is cordoned: the controller keeps what it knows."""
        self._on_untold = on_untold
        self._offline: dict[Uuid, bool] = {}
        """Failed directories, each with whether the controller knows."""
        self._reported_offset = -1
        """The metadata offset of the last heartbeat."""
        self._waits_for_metadata = False
        self._is_duplicate_reported = False
        """Whether the log already says that an earlier process has a session."""
        self._is_beating = False
        """Whether a heartbeat is under way."""
        self._give_up_ms = 0
        self.broker_epoch = -1
        self.registered: Pending[None] = Pending()
        """Complete when the registration is in this broker's own image."""
        self.unfenced: Pending[None] = Pending()
        self._is_left: Pending[None] = Pending()
        self._pause_ms = 1

    def register(
        self,
        listeners: Mapping[str, tuple[str, int]],
        *,
        cluster_id: str,
        features: Mapping[str, FeatureRange],
        directory_ids: list[Uuid],
        previous_broker_epoch: int,
    ) -> Pending[None]:
        """Introduce the broker; complete when it is known (fenced), also to its own image.

        Refused registrations are repeated: the session of an earlier process may still last. Fails
        with KafkaError after initial.broker.registration.timeout.ms.
        """
        registration = BrokerRegistrationRequest
        request = registration(
            broker_id=self._config.node_id,
            cluster_id=cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                registration.Listener(name=name, host=host, port=port, security_protocol=_PLAINTEXT)
                for name, (host, port) in listeners.items()
            ],
            features=[
                registration.Feature(
                    name=name,
                    min_supported_version=levels.low,
                    max_supported_version=levels.high,
                )
                for name, levels in sorted(features.items())
            ],
            rack=self._config.broker_rack,
            log_dirs=directory_ids,
            previous_broker_epoch=previous_broker_epoch,
        )
        limit_ms = self._config.initial_broker_registration_timeout_ms
        self._give_up_ms = self._clock.monotonic_ms() + limit_ms
        self._register(request)
        return self.registered

    def _register(self, request: BrokerRegistrationRequest) -> None:
        self._controller.send(request).on_done(lambda done: self._answered(request, done))

    def _answered(
        self, request: BrokerRegistrationRequest, done: Pending[BrokerRegistrationResponse]
    ) -> None:
        error = done.error
        if error is None and done.value.error_code:
            error = KafkaError(done.value.error_code)
        if error is None:
            self.broker_epoch = done.value.broker_epoch
            self.image_changed()
            return
        now_ms = self._clock.monotonic_ms()
        code = error.code if isinstance(error, KafkaError) else None
        if code in _FINAL or self._is_stopped or now_ms >= self._give_up_ms:
            self.registered.fail(error)
            return
        if code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            text = "registration: another process with node.id=%d has a session yet; trying again"
            level = logging.DEBUG if self._is_duplicate_reported else logging.WARNING
            log.log(level, text, self._config.node_id, extra={"event": "broker.duplicate"})
            self._is_duplicate_reported = True
        self._timer.add(now_ms + _REGISTER_AGAIN_MS, lambda _now_ms: self._register(request))

    def image_changed(self) -> None:
        """Note whether this broker's image has its registration."""
        if 0 <= self.broker_epoch <= self._image.offset_and_epoch.offset:
            self.registered.complete(None)

    def start_heartbeats(self) -> Pending[None]:
        """Ask to be unfenced, and stay so; complete when the controller agreed."""
        self._beat(self._clock.monotonic_ms())
        return self.unfenced

    def cordon(self, directory_ids: list[Uuid]) -> None:
        """Report at once which log directories get no new partitions (KIP-1066)."""
        if directory_ids != (self._cordoned or []):
            self._cordoned = directory_ids
            if not self._is_stopped and self.broker_epoch >= 0:
                self._send()

    def directory_failed(self, directory_id: Uuid) -> None:
        """Report at once, and until a restart, that a log directory is offline (KIP-858)."""
        if directory_id in self._offline:
            return
        self._offline[directory_id] = False
        limit_ms = self._config.log_dir_failure_timeout_ms
        check = partial(self._check_told, directory_id)
        self._timer.add(self._clock.monotonic_ms() + limit_ms, check)
        if not self._is_stopped and self.broker_epoch >= 0:
            self._send()

    def _check_told(self, directory_id: Uuid, _now_ms: int) -> None:
        if self._is_stopped or self._offline[directory_id]:
            return
        text = (
            f"the controller could not be told within log.dir.failure.timeout.ms that the log "
            f"directory with id {directory_id} is offline"
        )
        self._on_untold(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text))

    def _told(self, directory_ids: list[Uuid], done: Pending[BrokerHeartbeatResponse]) -> None:
        if done.error is None and not done.value.error_code:
            self._offline.update(dict.fromkeys(directory_ids, True))

    def _beat(self, _now_ms: int) -> None:
        if self._is_stopped:
            return
        if not self._is_beating:
            self._send()
        interval_ms = self._config.broker_heartbeat_interval_ms
        self._timer.add(next_aligned_tick(self._clock.monotonic_ms(), interval_ms), self._beat)

    def _send(self, *, is_leaving: bool = False) -> Pending[BrokerHeartbeatResponse]:
        self._waits_for_metadata = False
        self._is_beating = True
        self._reported_offset = self._image.offset_and_epoch.offset
        offline = list(self._offline)
        answer = self._controller.send(
            BrokerHeartbeatRequest(
                broker_id=self._config.node_id,
                broker_epoch=self.broker_epoch,
                current_metadata_offset=self._reported_offset,
                want_fence=False,
                want_shut_down=is_leaving,
                offline_log_dirs=offline,
                cordoned_log_dirs=self._cordoned,
            )
        )
        answer.on_done(partial(self._told, offline))
        answer.on_done(self._heard)
        return answer

    def _heard(self, done: Pending[BrokerHeartbeatResponse]) -> None:
        self._is_beating = False
        if self.unfenced.done or self._is_stopped or done.error is not None:
            return
        if not done.value.error_code and not done.value.is_fenced:
            self.unfenced.complete(None)
            return
        self._waits_for_metadata = True
        self.metadata_published()  # there may be news since the heartbeat was sent

    def metadata_published(self) -> None:
        """Ask again to be unfenced: only a broker that has caught up with the metadata is."""
        is_newer = self._image.offset_and_epoch.offset > self._reported_offset
        if self._waits_for_metadata and is_newer and not self._is_stopped:
            self._send()

    def shut_down(self) -> Pending[None]:
        """Leave in order: complete when this broker's partitions are led elsewhere, if anywhere.

        Fails with KafkaError where the controller cannot be asked.
        """
        self._is_stopped = True
        self._leave(0)
        return self._is_left

    def _leave(self, _now_ms: int) -> None:
        self._send(is_leaving=True).on_done(self._may_leave)

    def _may_leave(self, done: Pending[BrokerHeartbeatResponse]) -> None:
        """Ask again until the controller agrees: at once the first time, then with a pause.

        Also a controller that did not answer in time: it may be electing thousands of leaders.
        """
        error = done.error
        if isinstance(error, KafkaError) and error.code is ErrorCode.REQUEST_TIMED_OUT:
            self._leave(0)
        elif error is not None:
            self._is_left.fail(error)
        elif done.value.error_code:
            self._is_left.fail(KafkaError(done.value.error_code))
        elif done.value.should_shut_down:
            self._is_left.complete(None)
        else:
            self._timer.add(self._clock.monotonic_ms() + self._pause_ms, self._leave)
            self._pause_ms = _LEAVE_AGAIN_MS

    def stop(self) -> None:
        """Send no more heartbeats."""
        self._is_stopped = True
