"""A node's states in the controller: registrations, heartbeats, fencing, leaving.

Kafka: kafka.server.BrokerLifecycleManager; BrokerServer.shutdown, BrokerLifecycleManager
(PENDING_CONTROLLED_SHUTDOWN). Kafka waits for five minutes, even without a quorum;
kafka.server.ControllerRegistrationManager.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode, KafkaError, LocalDiskError
from ottla.metadata.broker import ControllerRegistration
from ottla.metadata.features import SUPPORTED_FEATURES, are_controllers_registered
from ottla.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.apis.broker_registration import BrokerRegistrationRequest
from ottla.protocol.apis.controller_registration import ControllerRegistrationRequest
from ottla.purgatory.backoff import Backoff
from ottla.purgatory.pending import Pending
from ottla.server.system.timers import next_aligned_tick
from ottla.server.system.workers import VolumeWorkers
from ottla.storage.log_set.jobs import run_all

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping
    from random import Random

    from ottla.config.broker import BrokerConfig
    from ottla.metadata.broker import SupportedLevels
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image.image import MetadataImage
    from ottla.protocol.apis.broker_heartbeat import BrokerHeartbeatResponse
    from ottla.protocol.apis.broker_registration import BrokerRegistrationResponse
    from ottla.purgatory.loop import Loop
    from ottla.purgatory.timing_wheel import TimerTask
    from ottla.server.controller.active_controller import ActiveController
    from ottla.server.controller.channel import ControllerChannel
    from ottla.server.controller.quorum_view import QuorumView
    from ottla.server.node.resources import NodeResources
    from ottla.server.system.environment import Environment
    from ottla.storage.log_set.jobs import StorageJob
    from ottla.storage.log_set.log_set import LogSet
    from ottla.types import Uuid

CONTROLLED_SHUTDOWN_LIMIT_S: Final = 5.0
_OTHERS_LIMIT_S: Final = 1.0
_OTHERS_POLL_S: Final = 0.01
_QUORUM_POLL_S: Final = 0.05
_CLOSING_WORKERS: Final = 8


async def controlled_shutdown(
    left: Coroutine[Any, Any, None], quorum: QuorumView, *, election_s: float
) -> None:
    """Wait for `left`, the controller's consent; a broker without it is fenced later.

    A quorum that has had no leader for the time of an election is not waited for.
    """
    log.info("stopping: controlled shutdown", extra={"event": "node.stopping"})
    leaving = asyncio.ensure_future(left)
    lost = asyncio.ensure_future(_without_leader(quorum, election_s))
    await asyncio.wait(
        {leaving, lost}, timeout=CONTROLLED_SHUTDOWN_LIMIT_S, return_when=asyncio.FIRST_COMPLETED
    )
    if leaving.done():
        error = leaving.exception()
        reason = None if error is None else str(error)
    elif lost.done():
        reason = "the quorum has no leader"
    else:
        reason = f"the controller did not agree within {CONTROLLED_SHUTDOWN_LIMIT_S:.0f} s"
    leaving.cancel()
    lost.cancel()
    if reason is not None:
        log.warning(
            "controlled shutdown failed: %s; partitions stay without a leader for "
            "broker.session.timeout.ms unless this node starts again",
            reason,
            extra={"event": "node.controlled_shutdown"},
        )


async def _without_leader(quorum: QuorumView, limit_s: float) -> None:
    """Wait until the quorum has had no leader for this time."""
    elapsed_s = 0.0
    while elapsed_s < limit_s:
        await asyncio.sleep(_QUORUM_POLL_S)
        elapsed_s = 0.0 if quorum.has_leader else elapsed_s + _QUORUM_POLL_S


async def let_others_leave(image: MetadataImage) -> None:
    """Wait, for a limited time, for brokers in controlled shutdown: they need the quorum."""
    brokers = image.cluster.brokers
    with suppress(TimeoutError):
        async with asyncio.timeout(_OTHERS_LIMIT_S):
            while any(broker.is_leaving for broker in brokers.values()):  # noqa: ASYNC110 - rare, and short
                await asyncio.sleep(_OTHERS_POLL_S)


async def close_logs(
    logs: LogSet, environment: Environment, loop: asyncio.AbstractEventLoop
) -> None:
    """Flush and close the logs, many at a time: concurrent syncs share one journal commit."""
    workers = VolumeWorkers(partial(environment.start_workers, loop, _CLOSING_WORKERS))

    async def close(batches: Iterator[list[StorageJob]]) -> None:
        for jobs in batches:
            closed = loop.create_future()
            run_all(jobs, workers.run).on_done(lambda _done, closed=closed: closed.set_result(None))  # type: ignore[misc] # a lambda's default binds the loop's value
            await closed

    await asyncio.gather(*map(close, logs.closing_jobs()))
    workers.close()


log = logging.getLogger("ottla.node")
_PLAINTEXT: Final = 0
_REGISTRATION_RETRY_MS: Final = 100
_SHUTDOWN_RETRY_MS: Final = 50
_REGISTER_AGAIN_MS: Final = 1000
"""More than a registration takes; only one that is lost is repeated."""
_NOT_RETRIABLE: Final = (
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_REGISTRATION,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
"""Errors of a registration that are not retriable."""


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
        loop: Loop,
        on_report_timeout: Callable[[KafkaError], None],
    ) -> None:
        """Take the image that this broker has applied, and the ids of its cordoned directories.

        on_report_timeout(error) is called when a failed directory could not be reported in time.
        """
        self._config = config
        self._controller = controller
        self._image = image
        self._incarnation_id = incarnation_id
        self._clock = loop.clock
        self._timer = loop.timer
        self._is_stopped = False
        self._cordoned: list[Uuid] | None = cordoned or None
        """None until a directory is cordoned: the controller keeps its list while it is None."""
        self._on_report_timeout = on_report_timeout
        self._offline: dict[Uuid, bool] = {}
        """Failed directories, each with whether a heartbeat that reported it was answered."""
        self._report_checks: dict[Uuid, TimerTask] = {}
        self._registration: BrokerRegistrationRequest | None = None
        self._returning: dict[Uuid, Pending[None]] = {}
        """Directories that are online again and not yet registered."""
        self._returned: set[Uuid] = set()
        """Those that were registered again and did not fail since."""
        self._reported_offset = -1
        """The metadata offset of the last heartbeat."""
        self._waits_for_metadata = False
        self._is_duplicate_reported = False
        """Whether a warning of an earlier process with a session was written."""
        self._is_in_flight = False
        """Whether a heartbeat has no response yet."""
        self._deadline_ms = 0
        self.broker_epoch = -1
        self.registered: Pending[None] = Pending()
        """Complete when the registration is in this broker's own image."""
        self.unfenced: Pending[None] = Pending()
        self._may_stop: Pending[None] = Pending()
        self._retry_delay_ms = 1

    def register(
        self,
        listeners: Mapping[str, tuple[str, int]],
        *,
        cluster_id: str,
        features: Mapping[str, SupportedLevels],
        directory_ids: list[Uuid],
        previous_broker_epoch: int,
    ) -> Pending[None]:
        """Register the broker, fenced; complete when its own image has the registration.

        Refused registrations are retried: the session of an earlier process may not have
        expired. Fails with KafkaError after initial.broker.registration.timeout.ms.
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
        self._deadline_ms = self._clock.monotonic_ms() + limit_ms
        self._registration = request
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
        if code in _NOT_RETRIABLE or self._is_stopped or now_ms >= self._deadline_ms:
            self.registered.fail(error)
            return
        if code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            text = "registration: another process with node.id=%d still has a session; trying again"
            level = logging.DEBUG if self._is_duplicate_reported else logging.WARNING
            log.log(level, text, self._config.node_id, extra={"event": "broker.duplicate"})
            self._is_duplicate_reported = True
        self._timer.add(now_ms + _REGISTRATION_RETRY_MS, lambda _now_ms: self._register(request))

    def image_changed(self) -> None:
        """Complete `registered` if this broker's image has its registration."""
        if 0 <= self.broker_epoch <= self._image.offset_and_epoch.offset:
            self.registered.complete(None)
        for directory_id in [one for one in self._returning if self.is_registered(one)]:
            self._returning.pop(directory_id).complete(None)
            self._returned.add(directory_id)
        lost = [one for one in self._returned if not self.is_registered(one)]
        if lost:  # a report of its failure came late: it was repeated at another controller
            self._returned.difference_update(lost)
            self._returning.update((one, Pending()) for one in lost)
            self._register_again()

    def is_registered(self, directory_id: Uuid) -> bool:
        """Whether this broker's image has a log directory as online."""
        own = self._image.cluster.brokers.get(self._config.node_id)
        return own is not None and directory_id in own.log_directories

    def start_heartbeats(self) -> Pending[None]:
        """Send heartbeats, which keep the session; complete when the broker is unfenced."""
        self._heartbeat(self._clock.monotonic_ms())
        return self.unfenced

    def cordon(self, directory_ids: list[Uuid]) -> None:
        """Report at once which log directories get no new partitions (KIP-1066)."""
        if directory_ids != (self._cordoned or []):
            self._cordoned = directory_ids
            if not self._is_stopped and self.broker_epoch >= 0:
                self._send()

    def directory_failed(self, directory_id: Uuid) -> None:
        """Report at once, and until it returns, that a log directory is offline (KIP-858)."""
        if directory_id in self._offline:
            return
        self._offline[directory_id] = False
        self._returned.discard(directory_id)
        self._returning.pop(directory_id, None)
        limit_ms = self._config.log_dir_failure_timeout_ms
        check = partial(self._check_reported, directory_id)
        due_ms = self._clock.monotonic_ms() + limit_ms
        self._report_checks[directory_id] = self._timer.add(due_ms, check)
        if not self._is_stopped and self.broker_epoch >= 0:
            self._send()

    def directory_returned(self, directory_id: Uuid) -> Pending[None]:
        """Register a directory that is online again; complete when this broker's image has it.

        The same incarnation registers again, as Kafka's BrokerRegistrationTracker lets it, and
        keeps its epoch and leaderships. A directory that fails meanwhile never completes.
        """
        self._offline.pop(directory_id, None)
        check = self._report_checks.pop(directory_id, None)
        if check is not None:
            check.cancel()
        returned = self._returning[directory_id] = Pending()
        self._register_again()
        return returned

    def _register_again(self, _now_ms: int = 0) -> None:
        """Send the registration until it has all directories that are online.

        A heartbeat that was sent before may still take one offline after it.
        """
        assert self._registration is not None
        self.image_changed()
        if self._is_stopped or not self._returning:
            return
        known = dict.fromkeys([*self._registration.log_dirs, *self._returning])
        self._registration.log_dirs = [one for one in known if one not in self._offline]
        self._controller.send(self._registration).on_done(self._registered_again)
        self._timer.add(self._clock.monotonic_ms() + _REGISTER_AGAIN_MS, self._register_again)

    def _registered_again(self, done: Pending[BrokerRegistrationResponse]) -> None:
        error = done.error or ErrorCode(done.value.error_code)
        if error and not self._is_stopped:
            log.info(
                "the controller did not register a log directory again: %s; it is asked again",
                error,
                extra={"event": "directory.not_registered"},
            )

    def _check_reported(self, directory_id: Uuid, _now_ms: int) -> None:
        if self._is_stopped or self._offline[directory_id]:
            return
        text = (
            f"the controller did not confirm within log.dir.failure.timeout.ms that the log "
            f"directory with id {directory_id} is offline"
        )
        self._on_report_timeout(LocalDiskError(text))

    def _reported(self, directory_ids: list[Uuid], done: Pending[BrokerHeartbeatResponse]) -> None:
        if done.error is None and not done.value.error_code:
            self._offline.update(dict.fromkeys(directory_ids, True))

    def _heartbeat(self, _now_ms: int) -> None:
        if self._is_stopped:
            return
        if not self._is_in_flight:
            self._send()
        interval_ms = self._config.broker_heartbeat_interval_ms
        self._timer.add(next_aligned_tick(self._clock.monotonic_ms(), interval_ms), self._heartbeat)

    def _send(self, *, is_leaving: bool = False) -> Pending[BrokerHeartbeatResponse]:
        self._waits_for_metadata = False
        self._is_in_flight = True
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
        answer.on_done(partial(self._reported, offline))
        answer.on_done(self._heartbeat_answered)
        return answer

    def _heartbeat_answered(self, done: Pending[BrokerHeartbeatResponse]) -> None:
        self._is_in_flight = False
        if self.unfenced.done or self._is_stopped or done.error is not None:
            return
        if not done.value.error_code and not done.value.is_fenced:
            self.unfenced.complete(None)
            return
        self._waits_for_metadata = True
        self.metadata_published()  # the image may have changed since the heartbeat was sent

    def metadata_published(self) -> None:
        """Send a heartbeat while the broker is fenced: only one that has caught up is unfenced."""
        is_newer = self._image.offset_and_epoch.offset > self._reported_offset
        if self._waits_for_metadata and is_newer and not self._is_stopped:
            self._send()

    def shut_down(self) -> Pending[None]:
        """Request a controlled shutdown; complete when the controller lets the broker stop.

        Fails with KafkaError when the controller is unreachable or refuses.
        """
        self._is_stopped = True
        self._request_shutdown(0)
        return self._may_stop

    def _request_shutdown(self, _now_ms: int) -> None:
        self._send(is_leaving=True).on_done(self._shutdown_answered)

    def _shutdown_answered(self, done: Pending[BrokerHeartbeatResponse]) -> None:
        """Repeat the request until the broker may stop: the first time at once, then with a delay.

        A timeout is retried as well: the controller may be electing thousands of leaders.
        """
        error = done.error
        if isinstance(error, KafkaError) and error.code is ErrorCode.REQUEST_TIMED_OUT:
            self._request_shutdown(0)
        elif error is not None:
            self._may_stop.fail(error)
        elif done.value.error_code:
            self._may_stop.fail(KafkaError(done.value.error_code))
        elif done.value.should_shut_down:
            self._may_stop.complete(None)
        else:
            self._timer.add(
                self._clock.monotonic_ms() + self._retry_delay_ms, self._request_shutdown
            )
            self._retry_delay_ms = _SHUTDOWN_RETRY_MS

    def close(self) -> None:
        """Send no more heartbeats."""
        self._is_stopped = True


controller_log = logging.getLogger("ottla.controller")
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
        loop: Loop,
        rng: Random,
    ) -> None:
        """Take what this controller registers, and the image that this node has applied."""
        self._own = own
        self._image = image
        self._channel = channel
        self._clock = loop.clock
        self._timer = loop.timer
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
            controller_log.info(
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
        loop=resources.core_loop,
        rng=resources.environment.rng,
    )
