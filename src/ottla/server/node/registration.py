"""A controller's registration with the active controller, standby or active itself (KIP-919).

Kafka: kafka.server.ControllerRegistrationManager.

Each process of a controller has an incarnation id. It sends its registration until the image shows
this id under its node id, and again when the image shows another one there.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import KafkaError
from ottla.metadata.broker import ControllerRegistration
from ottla.metadata.features import SUPPORTED_FEATURES, are_controllers_registered
from ottla.protocol.apis.controller_registration import ControllerRegistrationRequest
from ottla.purgatory.backoff import Backoff

if TYPE_CHECKING:
    from random import Random

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image.image import MetadataImage
    from ottla.purgatory.pending import Pending
    from ottla.purgatory.timing_wheel import TimerTask, TimingWheel
    from ottla.server.controller.active_controller import ActiveController
    from ottla.server.node.resources import NodeResources

log = logging.getLogger("ottla.controller")
REGISTRATION_TIMEOUT_MS: Final = 5000
"""How long a request is repeated while no controller is active."""
_BACKOFF_MS: Final = (100, 120_000)
"""As in Kafka: quick for an election, rare for a quorum that is gone."""
_JITTER: Final = 0.02
"""As in Kafka; a controller meets few others."""


class ControllerRegistrationManager:
    """Runs when the image changes, a response arrives or the backoff after a failure ends."""

    def __init__(
        self,
        own: ControllerRegistration,
        image: MetadataImage,
        channel: ActiveController,
        *,
        clock: Clock,
        timer: TimingWheel,
        rng: Random,
    ) -> None:
        """Take what this controller registers, and the image that this node has applied."""
        self._own = own
        self._image = image
        self._channel = channel
        self._clock = clock
        self._timer = timer
        self._backoff = Backoff(*_BACKOFF_MS, rng, jitter=_JITTER)
        self._is_waiting = False
        """Whether a request has no answer yet."""
        self._failures = 0
        """Consecutive failures."""
        self._retry: TimerTask | None = None
        self._is_stopped = False

    @property
    def is_registered(self) -> bool:
        """Whether this node's image has the registration of this process."""
        found = self._image.cluster.controllers.get(self._own.controller_id)
        return found is not None and found.incarnation_id == self._own.incarnation_id

    def metadata_changed(self, delta: MetadataDelta, _image: MetadataImage) -> None:
        """Register if metadata.version, or the registration of this node id, has changed."""
        if delta.features_changed or self._own.controller_id in delta.controllers_changed:
            self._send_if_needed()

    def _send_if_needed(self, _now_ms: int = 0) -> None:
        if self._is_stopped or self._is_waiting or self.is_registered:
            return
        if are_controllers_registered(self._image.features.metadata_version):
            self._is_waiting = True
            self._channel.send(_request(self._own)).on_done(self._answered)

    def _answered(self, done: Pending[Any]) -> None:
        self._is_waiting = False
        error = done.error
        if error is None and done.value.error_code:
            error = KafkaError(done.value.error_code, done.value.error_message)
        if error is None:
            self._failures = 0
        elif not self._is_stopped:
            self._retry_after(error)

    def _retry_after(self, error: Exception) -> None:
        log.info(
            "the active controller did not register this one: %s; trying again",
            error,
            extra={"event": "controller.unregistered"},
        )
        self._failures += 1
        if self._retry is not None:
            self._retry.cancel()
        due_ms = self._clock.monotonic_ms() + self._backoff.after(self._failures)
        self._retry = self._timer.add(due_ms, self._send_if_needed)

    def close(self) -> None:
        """Send no more, and close the channel."""
        self._is_stopped = True
        self._channel.close()


def _request(own: ControllerRegistration) -> ControllerRegistrationRequest:
    """Return the request that makes a registration."""
    kind = ControllerRegistrationRequest
    return kind(
        controller_id=own.controller_id,
        incarnation_id=own.incarnation_id,
        zk_migration_ready=own.zk_migration_ready,
        listeners=[
            kind.Listener(
                name=name, host=one.host, port=one.port, security_protocol=one.security_protocol
            )
            for name, one in own.listeners.items()
        ],
        features=[
            kind.Feature(name=name, min_supported_version=one.low, max_supported_version=one.high)
            for name, one in own.features.items()
        ],
    )


def registration_manager(
    config: BrokerConfig, resources: NodeResources, image: MetadataImage, channel: ActiveController
) -> ControllerRegistrationManager:
    """Return the manager of a node's registration, with a new incarnation id."""
    own = ControllerRegistration(
        config.node_id,
        resources.environment.new_uuid(),
        zk_migration_ready=False,
        listeners=resources.controller_addresses,
        features=SUPPORTED_FEATURES,
    )
    return ControllerRegistrationManager(
        own,
        image,
        channel,
        clock=resources.environment.clock,
        timer=resources.timer,
        rng=resources.environment.rng,
    )
