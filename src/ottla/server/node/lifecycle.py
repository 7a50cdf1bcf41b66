"""A broker's standing with the controller: registration, heartbeats, fencing.

Kafka: kafka.server.BrokerLifecycleManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import KafkaError
from ottla.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.apis.broker_registration import BrokerRegistrationRequest
from ottla.purgatory.pending import Pending
from ottla.server.system.timers import next_aligned_tick

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.metadata.broker import FeatureRange
    from ottla.metadata.image.image import MetadataImage
    from ottla.protocol.apis.broker_heartbeat import BrokerHeartbeatResponse
    from ottla.protocol.apis.broker_registration import BrokerRegistrationResponse
    from ottla.purgatory.timing_wheel import TimingWheel
    from ottla.server.controller.channel import ControllerChannel
    from ottla.types import Uuid

_PLAINTEXT = 0


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
    ) -> None:
        """Take the image that this broker has applied, and its cordoned directories' ids."""
        self._config = config
        self._controller = controller
        self._image = image
        self._incarnation_id = incarnation_id
        self._clock = clock
        self._timer = timer
        self._is_stopped = False
        self._cordoned: list[Uuid] | None = cordoned or None
        """None until any directory is cordoned: the controller keeps what it knows."""
        self._reported_offset = -1
        """The metadata offset of the last heartbeat."""
        self._waits_for_metadata = False
        self.broker_epoch = -1
        self.unfenced: Pending[None] = Pending()

    def register(
        self,
        listeners: Mapping[str, tuple[str, int]],
        *,
        cluster_id: str,
        features: Mapping[str, FeatureRange],
        directory_ids: list[Uuid],
        previous_broker_epoch: int,
    ) -> Pending[None]:
        """Introduce the broker; complete when it is known (fenced). Fails with KafkaError."""
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
        return self._controller.send(request).then(self._registered)

    def _registered(self, response: BrokerRegistrationResponse) -> None:
        if response.error_code:
            raise KafkaError(response.error_code)
        self.broker_epoch = response.broker_epoch

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

    def _beat(self, _now_ms: int) -> None:
        if self._is_stopped:
            return
        self._send()
        interval_ms = self._config.broker_heartbeat_interval_ms
        self._timer.add(next_aligned_tick(self._clock.monotonic_ms(), interval_ms), self._beat)

    def _send(self, *, is_leaving: bool = False) -> Pending[BrokerHeartbeatResponse]:
        self._waits_for_metadata = False
        self._reported_offset = self._image.offset_and_epoch.offset
        answer = self._controller.send(
            BrokerHeartbeatRequest(
                broker_id=self._config.node_id,
                broker_epoch=self.broker_epoch,
                current_metadata_offset=self._reported_offset,
                want_fence=is_leaving,
                want_shut_down=is_leaving,
                cordoned_log_dirs=self._cordoned,
            )
        )
        answer.on_done(self._answered)
        return answer

    def _answered(self, done: Pending[BrokerHeartbeatResponse]) -> None:
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

    def shut_down(self) -> Pending[BrokerHeartbeatResponse]:
        """Report that this broker leaves: its partitions are led elsewhere, if anywhere."""
        self._is_stopped = True
        return self._send(is_leaving=True)

    def stop(self) -> None:
        """Send no more heartbeats."""
        self._is_stopped = True
