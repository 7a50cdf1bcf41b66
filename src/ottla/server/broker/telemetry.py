"""Clients' own metrics: subscriptions, push intervals and receivers (KIP-714).

Kafka: org.apache.kafka.server.ClientMetricsManager, ClientMetricsInstance, ClientTelemetry.

A receiver is a plug-in of metric.reporters with `export_metrics(context, payload)`. It is called
on a thread of its own, so that it may wait for a network.
"""

from __future__ import annotations

import logging
import zlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.config.group import ClientMetricsConfig, client_pattern
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.resources import ConfigResourceType
from ottla.protocol.apis.push_telemetry import PushTelemetryResponse
from ottla.purgatory.pending import Pending
from ottla.records.compression import Compression, decompress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import regex

    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image.image import MetadataImage
    from ottla.metrics.ledger import Ledger
    from ottla.protocol.apis.push_telemetry import PushTelemetryRequest
    from ottla.server.system.environment import RunInWorker
    from ottla.types import Uuid

log = logging.getLogger("ottla.telemetry")
MAX_INSTANCES: Final = 16_384
_INSTANCE_BYTES: Final = 3000
"""With the texts of its context, which are cut."""
MAX_WAITING: Final = 64
"""Messages that wait for a slow receiver; further ones get THROTTLING_QUOTA_EXCEEDED."""
DEFAULT_INTERVAL_MS: Final = 300_000
ALL_METRICS: Final = "*"
ACCEPTED: Final = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
_MAX_DECOMPRESSED_BYTES: Final = 100 * 1024 * 1024
_NEVER_MS: Final = -1
_MATCH_TIMEOUT_S: Final = 0.01
_SUBSCRIPTION_ERRORS: Final = (
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
)
"""Errors after which a client requests its subscription again at once."""


class TelemetryContext(NamedTuple):
    """The client that sends metrics, and its connection."""

    client_id: str
    client_address: str
    client_port: int
    client_software_name: str
    client_software_version: str
    listener_name: str
    push_interval_ms: int = DEFAULT_INTERVAL_MS


class TelemetryPayload(NamedTuple):
    """Metrics of a client: OTLP, decompressed."""

    client_instance_id: Uuid
    is_terminating: bool
    data: bytes
    content_type: str = "OTLP"


class TelemetrySubscription(NamedTuple):
    """One subscription, read from its settings."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: tuple[tuple[str, regex.Pattern[str]], ...]


class ClientInstance:
    """The state kept of one client; times are monotonic ms."""

    __slots__ = (
        "connection_ids",
        "context",
        "interval_ms",
        "is_terminating",
        "last_error",
        "last_get_ms",
        "last_push_ms",
        "metrics",
        "subscription_id",
        "version",
    )

    def __init__(
        self, context: TelemetryContext, metrics: list[str], subscription_id: int, version: int
    ) -> None:
        self.connection_ids: set[str] = set()
        """The connections on which it was created; the end of any of them ends it."""
        self.context = context
        self.interval_ms = context.push_interval_ms
        self.metrics = metrics
        self.subscription_id = subscription_id
        self.version = version
        self.is_terminating = False
        self.last_error = ErrorCode.NONE
        self.last_get_ms = self.last_push_ms = _NEVER_MS

    def may_get(self, now_ms: int) -> bool:
        """Whether a subscription is due: after the interval, or after a subscription error."""
        last_ms = max(self.last_get_ms, self.last_push_ms)
        if last_ms != _NEVER_MS and now_ms - last_ms < self.interval_ms:
            return self.last_error in _SUBSCRIPTION_ERRORS
        self.last_get_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """Whether metrics are due: once after each subscription, then every interval."""
        is_first = self.last_push_ms == _NEVER_MS or self.last_get_ms > self.last_push_ms
        if not is_first and now_ms - self.last_push_ms < self.interval_ms:
            return False
        self.last_push_ms = now_ms
        return True


class Telemetry:
    """The node's subscriptions, the clients it knows, and the receivers."""

    def __init__(
        self, max_bytes: int, run_in_worker: RunInWorker, receivers: Sequence[Any] = ()
    ) -> None:
        """max_bytes is telemetry.max.bytes, the limit of a message; receivers run in the worker."""
        self.max_bytes = max_bytes
        self._receivers = receivers
        self._run_in_worker = run_in_worker
        self._subscriptions: dict[str, TelemetrySubscription] = {}
        self._version = 0
        self._instances: OrderedDict[Uuid, ClientInstance] = OrderedDict()
        self._by_connection: dict[str, set[Uuid]] = {}
        self._waiting = 0

    def account_in(self, ledger: Ledger) -> None:
        """Register what is kept for clients."""
        bound_bytes = MAX_INSTANCES * _INSTANCE_BYTES
        ledger.register("telemetry_instances", bound_bytes, self._measure)

    def _measure(self) -> tuple[int, int]:
        return len(self._instances), len(self._instances) * _INSTANCE_BYTES

    @property
    def has_receiver(self) -> bool:
        """Whether clients' metrics are received; otherwise their APIs are not advertised."""
        return bool(self._receivers)

    def receive_with(self, receivers: Sequence[Any]) -> None:
        """Replace the receivers."""
        self._receivers = receivers

    def metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply the changed settings of subscriptions."""
        for resource in delta.configs_changed:
            if resource.type == ConfigResourceType.CLIENT_METRICS:
                self._update(image, resource.name)

    def _update(self, image: MetadataImage, name: str) -> None:
        """Apply the settings of a subscription, or its deletion."""
        stored = image.configs.of(ConfigResourceType.CLIENT_METRICS, name)
        self._version += 1
        subscription = read_subscription(stored) if stored else None
        if subscription is not None:
            self._subscriptions[name] = subscription
            return
        self._subscriptions.pop(name, None)
        if stored:
            extra = {"event": "telemetry.unreadable", "subscription": name}
            text = "invalid match %s of client metrics; correct it with ottla client-metrics"
            log.error(text, stored.get("match"), extra=extra)

    def connection_closed(self, connection_id: str) -> None:
        """Forget the clients of a connection.

        One connection may speak for several: Kafka keeps the earlier ones until they are silent.
        """
        for instance_id in tuple(self._by_connection.get(connection_id, ())):
            self._forget(instance_id, self._instances.pop(instance_id))

    def _forget(self, instance_id: Uuid, instance: ClientInstance) -> None:
        for connection_id in instance.connection_ids:
            instance_ids = self._by_connection[connection_id]
            instance_ids.discard(instance_id)
            if not instance_ids:
                del self._by_connection[connection_id]

    def instance(
        self, instance_id: Uuid, context: TelemetryContext, connection_id: str
    ) -> ClientInstance:
        """Return the state of a client, rebuilt when subscriptions have changed."""
        known = self._instances.get(instance_id)
        if known is None or known.version < self._version:
            rebuilt = self._new_instance(instance_id, known.context if known else context)
            rebuilt.connection_ids = {connection_id}
            if known is not None:
                rebuilt.connection_ids |= known.connection_ids
            self._by_connection.setdefault(connection_id, set()).add(instance_id)
            known = self._instances[instance_id] = rebuilt
            while len(self._instances) > MAX_INSTANCES:
                self._forget(*self._instances.popitem(last=False))
        self._instances.move_to_end(instance_id)
        return known

    def _new_instance(self, instance_id: Uuid, context: TelemetryContext) -> ClientInstance:
        matching = [
            subscription
            for subscription in self._subscriptions.values()
            if _matches(subscription, instance_id, context)
        ]
        metrics = sorted({name for subscription in matching for name in subscription.metrics})
        if ALL_METRICS in metrics:
            metrics = [ALL_METRICS]
        interval_ms = min(
            [DEFAULT_INTERVAL_MS, *(subscription.interval_ms for subscription in matching)]
        )
        digest = zlib.crc32(f"{metrics}{interval_ms}".encode() + instance_id)
        return ClientInstance(
            context._replace(push_interval_ms=interval_ms),
            metrics,
            digest - (1 << 32) if digest >> 31 else digest,
            self._version,
        )

    def check_push(
        self, request: PushTelemetryRequest, instance: ClientInstance, now_ms: int
    ) -> None:
        """Raise KafkaError for a message that is early, too large or of another subscription."""
        if instance.is_terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if not instance.may_push(now_ms) and not request.terminating:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if request.subscription_id != instance.subscription_id:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if request.compression_type not in (Compression.NONE, *ACCEPTED):
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(request.metrics) > self.max_bytes:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)
        if self._waiting >= MAX_WAITING:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    def export(
        self, request: PushTelemetryRequest, instance: ClientInstance
    ) -> Pending[PushTelemetryResponse]:
        """Pass the metrics to all receivers; INVALID_RECORD when one of them fails."""
        pending: Pending[PushTelemetryResponse] = Pending()
        receivers = tuple(self._receivers)
        message = bytes(request.metrics)

        def run() -> None:
            codec = Compression(request.compression_type)
            data = message
            if codec is not Compression.NONE:
                data = bytes(decompress(codec, message, _MAX_DECOMPRESSED_BYTES))
            payload = TelemetryPayload(request.client_instance_id, request.terminating, data)
            for receiver in receivers:
                receiver.export_metrics(instance.context, payload)

        def done(_none: None, error: Exception | None) -> None:
            self._waiting -= 1
            if error is not None:
                client = instance.context.client_address
                extra = {"event": "telemetry.failed", "client": client}
                text = "metrics of a client are lost: %s; check the plug-in in metric.reporters"
                log.error(text, error, extra=extra)
            code = ErrorCode.NONE if error is None else ErrorCode.INVALID_RECORD
            instance.last_error = code
            pending.complete(PushTelemetryResponse(error_code=int(code)))

        self._waiting += 1
        self._run_in_worker(run, done)
        return pending


def read_subscription(stored: Mapping[str, str]) -> TelemetrySubscription | None:
    """Return a subscription from its stored settings; None when its match is invalid.

    They were checked when they were stored, but not every regular expression of Java is one of
    Python. The last expression of an attribute counts, as in Kafka.
    """
    config = ClientMetricsConfig(ClientMetricsConfig.definitions.read(stored).values, stored)
    patterns: dict[str, regex.Pattern[str]] = {}
    for text in config.match:
        pattern = client_pattern(text)
        if pattern is None:
            return None
        name, expression = pattern
        patterns[name] = expression
    return TelemetrySubscription(config.metrics, config.interval_ms, tuple(patterns.items()))


def _matches(one: TelemetrySubscription, instance_id: Uuid, context: TelemetryContext) -> bool:
    values = {
        "client_instance_id": str(instance_id),
        "client_id": context.client_id,
        "client_software_name": context.client_software_name,
        "client_software_version": context.client_software_version,
        "client_source_address": context.client_address,
        "client_source_port": str(context.client_port),
    }
    return all(_is_match(pattern, values[name]) for name, pattern in one.patterns)


def _is_match(pattern: regex.Pattern[str], value: str) -> bool:
    """Whether a value matches; a match that takes too long does not: it would block the loop."""
    try:
        return pattern.fullmatch(value, timeout=_MATCH_TIMEOUT_S) is not None
    except TimeoutError:
        extra = {"event": "telemetry.endless"}
        text = "matching %s takes too long; simplify the match: ottla client-metrics"
        log.warning(text, pattern.pattern, extra=extra)
        return False
