"""Calls of the admin client: target node, retries, deadline.

Kafka: org.apache.kafka.clients.admin.KafkaAdminClient's Call, .internals.{AdminApiDriver,
AdminBootstrapAddresses}. KIP-919 (calls of controllers).
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.clients.arguments import as_partition, check_timeout
from ottla.clients.client import ANY_NODE
from ottla.clients.coordinator import GROUP, CoordinatorCall, CoordinatorLookup
from ottla.clients.metadata import ClusterMetadata
from ottla.clients.offsets import is_retried
from ottla.clients.settings import ADMIN, read_settings, refuse_positional
from ottla.clients.transport import AsyncClient, Runtime
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.errors.base import topic_error
from ottla.protocol.apis.describe_cluster import DescribeClusterRequest
from ottla.types import ZERO_UUID, Node, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping
    from typing import Never, Unpack

    from ottla.clients.environment import ClientEnvironment
    from ottla.clients.keywords import AdminSettings
    from ottla.clients.settings import ValidatedSettings
    from ottla.errors import ClosedError
    from ottla.protocol.schema import Request

T = TypeVar("T")
NOT_RETRIED_HERE = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.CORRUPT_MESSAGE}
)
MAX_COORDINATORS = 1000
"""Cached coordinators: later calls for the same group skip FindCoordinator."""
BROKERS, CONTROLLERS = 1, 2
_CORRUPT_ONLY = frozenset({ErrorCode.CORRUPT_MESSAGE})


def response_code(answer: Any) -> int:
    """Return the top-level error code of a response, 0 without one."""
    code: int = getattr(answer, "error_code", 0)
    return code


class AdminCalls(AsyncClient):
    """Base of the admin's parts: one runtime, and calls with retries."""

    def __init__(
        self,
        *refused: Never,
        config: Mapping[str, Any] | None = None,
        environment: ClientEnvironment | None = None,
        **settings: Unpack[AdminSettings],
    ) -> None:
        """Take settings; an environment is given where the time is simulated."""
        refuse_positional("AsyncAdmin", refused)
        self._settings = read_settings(ADMIN, config, settings)
        self._settings.client_id = self._settings.client_id or "ottla-admin"
        _check_api_timeout(self._settings)
        if self._settings.bootstrap_controllers and self._settings.bootstrap_servers:
            raise ConfigError(
                "bootstrap.servers and bootstrap.controllers cannot both be set: connect to "
                "brokers or controllers",
            )
        self._uses_controllers = bool(self._settings.bootstrap_controllers)
        if self._uses_controllers:
            self._settings.bootstrap_servers = self._settings.bootstrap_controllers
        metadata: ClusterMetadata | None = None
        if self._uses_controllers:
            max_age_ms = self._settings.metadata_max_age_ms
            metadata = _ControllerMetadata(max_age_ms=max_age_ms, allow_auto_create=False)
        self._runtime = Runtime(self._settings, environment, metadata)
        self._client = self._runtime.client
        self._instance_id = ZERO_UUID
        self._coordinators: dict[tuple[int, str], CoordinatorLookup] = {}
        self._topics_in_calls: Counter[str] = Counter()  # topics of the calls that are running

    def _deadline_ms(self, timeout: float | None) -> float:
        check_timeout(timeout)
        self._check_open()
        self._runtime.attach()
        limit = self._settings.default_api_timeout_ms if timeout is None else timeout * 1000
        return self._runtime.now_ms() + limit

    def _remaining_seconds(self, deadline_ms: float) -> float:
        """Return the timeout for the remaining part of a call."""
        return max(deadline_ms - self._runtime.now_ms(), 0) / 1000

    def _request_limit_ms(self, deadline_ms: float) -> int:
        """Return the timeout of one request: request.timeout.ms, or less near the deadline."""
        limit: int = self._settings.request_timeout_ms
        return max(min(limit, int(deadline_ms - self._runtime.now_ms())), 1)

    async def _call(
        self,
        request: Request,
        *,
        timeout: float | None = None,
        node_id: int | None = None,
        error_of: Callable[[Any], int] = response_code,
        max_version: int | None = None,
    ) -> Any:
        """Send to a node, or to any; retry lost connections and retriable codes of error_of."""
        if self._uses_controllers:
            _refuse_for_controllers(request)
        deadline_ms = self._deadline_ms(timeout)
        attempt = 0
        while True:
            attempt += 1
            failure: KafkaError
            try:
                pending = self._client.send(
                    await self._target(node_id, deadline_ms),
                    request,
                    timeout_ms=self._request_limit_ms(deadline_ms),
                    max_version=max_version,
                )
                answer = await self._runtime.wait_for(pending)
                code = error_of(answer)
                if not code:
                    return answer
                failure = KafkaError(code, getattr(answer, "error_message", None))
            except KafkaError as error:
                failure = error
            await self._wait_before_retry(failure, attempt, deadline_ms)

    async def _target(self, node_id: int | None, deadline_ms: float) -> int:
        """Return the node to send to: any broker, or the active one of controllers."""
        if node_id is None and not self._uses_controllers:
            return ANY_NODE
        metadata = self._client.metadata
        if node_id is None and metadata.controller_id not in metadata.brokers:
            metadata = await self._refresh_until(deadline_ms)
        if node_id is None:
            known = metadata.controller_id in metadata.brokers
            return metadata.controller_id if known else ANY_NODE
        if node_id not in metadata.brokers:
            await self._refresh_until(deadline_ms)
        return node_id

    async def wait_connected(self, *, timeout: float) -> None:
        """Wait for an answer of any node; the error after the timeout names the addresses.

        A connection alone is none: a listener that needs TLS or a login closes it again. A node
        that is connected without an error at the end of the time may be slow.
        """
        deadline_ms = self._deadline_ms(timeout)
        self._client.refresh()
        while not self._client.has_ready_connection:
            self._check_open()
            pending_error = self._client.pending_error()
            if pending_error is not None:
                raise pending_error
            remaining_ms = deadline_ms - self._runtime.now_ms()
            if remaining_ms <= 0:
                if self._client.connection_count() and not self._client.outages.causes():
                    return
                raise self._client.unreachable()
            await self._runtime.wait_progress(min(remaining_ms, self._settings.retry_backoff_ms))

    def _check_open(self) -> None:
        """Raise ClosedError after `close`."""
        if self._client.closed:
            raise self.closed_error()

    async def _wait_before_retry(
        self,
        failure: KafkaError,
        attempt: int,
        deadline_ms: float,
        *,
        not_retried: Container[ErrorCode] = NOT_RETRIED_HERE,
    ) -> None:
        """Wait for the retry backoff; raise the failure if it is not retriable or time is up."""
        if not is_retried(failure) or failure.code in not_retried:
            raise failure
        self._check_open()
        pending_error = self._client.pending_error()
        if pending_error is not None:
            raise pending_error
        if self._runtime.now_ms() >= deadline_ms:
            text = "the call timed out (default.api.timeout.ms)"
            raise self._client.timeout_error(text, failure)
        self._client.metadata.mark_stale()
        remaining_ms = max(deadline_ms - self._runtime.now_ms(), 0)
        await self._runtime.sleep(min(self._client.backoff.after(attempt), remaining_ms))

    async def _refresh_until(self, deadline_ms: float) -> ClusterMetadata:
        """Refresh the metadata of the topics in use."""
        pending = self._client.refresh()
        while not pending.done:
            remaining_ms = deadline_ms - self._runtime.now_ms()
            self._check_open()
            pending_error = self._client.pending_error()
            if pending_error is not None:
                raise pending_error
            if remaining_ms <= 0:
                raise self._client.timeout_error("no metadata response in time")
            await self._runtime.wait_progress(remaining_ms)
        pending.value  # noqa: B018 - raises what went wrong
        return self._client.metadata

    async def _call_brokers(
        self, request: Request, timeout: float | None, broker_ids: Iterable[int] | None = None
    ) -> dict[int, Any]:
        """Send to brokers, all by default, one after another; return the responses by id."""
        deadline_ms = self._deadline_ms(timeout)
        if broker_ids is None:
            broker_ids = sorted((await self._refresh_until(deadline_ms)).brokers)
        return {
            broker_id: await self._call(
                request, timeout=self._remaining_seconds(deadline_ms), node_id=broker_id
            )
            for broker_id in broker_ids
        }

    async def _call_each(
        self,
        keys: Iterable[str],
        call: Callable[[str, float], Awaitable[T]],
        timeout: float | None,
    ) -> dict[str, T | KafkaError]:
        """Call for keys one after another within the time; an error is the outcome of its key."""
        outcomes: dict[str, T | KafkaError] = {}
        deadline_ms = self._deadline_ms(timeout)
        for key in keys:
            try:
                outcomes[key] = await call(key, self._remaining_seconds(deadline_ms))
            except KafkaError as error:
                outcomes[key] = error
        return outcomes

    async def _coordinator_call(
        self,
        group_id: str,
        request: Request,
        *,
        timeout: float | None,
        error_of: Callable[[Any], int] = response_code,
        max_version: int | None = None,
        key_type: int = GROUP,
    ) -> Any:
        """Send to the coordinator of a group; look it up again after it has moved."""
        deadline_ms = self._deadline_ms(timeout)
        # The lookup of an earlier call spares FindCoordinator; the least recently used one goes.
        known = self._coordinators.pop((key_type, group_id), None)
        coordinator = known or CoordinatorLookup(self._client, group_id, key_type)
        self._coordinators[key_type, group_id] = coordinator
        while len(self._coordinators) > MAX_COORDINATORS:
            del self._coordinators[next(iter(self._coordinators))]
        call = CoordinatorCall(
            coordinator,
            request,
            error_of,
            deadline_ms=deadline_ms,
            is_retried=lambda error: is_retried(error) and error.code not in NOT_RETRIED_HERE,
            max_version=max_version,
        )
        return await self._runtime.run(call)

    async def _call_leaders(
        self,
        values: Mapping[TopicPartition, int],
        build: Callable[[Mapping[TopicPartition, int]], Request],
        read: Callable[[Any], dict[TopicPartition, Any]],
        timeout: float | None,
    ) -> dict[TopicPartition, Any]:
        """Send each leader its partitions; retry those that were sent to a former leader."""
        deadline_ms = self._deadline_ms(timeout)
        remaining = {as_partition(partition): value for partition, value in values.items()}
        if not remaining:
            return {}
        with self._keeping_topics({partition.topic for partition in remaining}):
            outcomes = await self._query_leaders(remaining, build, read, deadline_ms)
        return {partition: outcomes[partition] for partition in remaining}

    @contextmanager
    def _keeping_topics(self, topics: set[str]) -> Iterator[None]:
        """Keep topics in the metadata during a call; several calls may overlap."""
        metadata = self._client.metadata
        self._topics_in_calls.update(topics)
        metadata.add_topics(topics)
        try:
            yield
        finally:
            self._topics_in_calls.subtract(topics)
            self._topics_in_calls = +self._topics_in_calls
            metadata.set_topics(self._topics_in_calls)

    async def _query_leaders(
        self,
        remaining: dict[TopicPartition, int],
        build: Callable[[Mapping[TopicPartition, int]], Any],
        read: Callable[[Any], dict[TopicPartition, Any]],
        deadline_ms: float,
    ) -> dict[TopicPartition, Any]:
        result: dict[TopicPartition, Any] = {}
        await self._refresh_until(deadline_ms)
        attempt = 0
        while True:
            attempt += 1
            failure = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
            for leader, part in self._split(remaining, result).items():
                try:
                    pending = self._client.send(
                        leader, build(part), timeout_ms=self._request_limit_ms(deadline_ms)
                    )
                    answer = await self._runtime.wait_for(pending)
                except KafkaError as error:
                    failure = error
                    continue
                for partition, outcome in read(answer).items():
                    if isinstance(outcome, KafkaError) and outcome.is_retriable:
                        failure = outcome
                    else:
                        result[partition] = outcome
            remaining = {
                partition: value
                for partition, value in remaining.items()
                if partition not in result
            }
            if not remaining:
                break
            try:
                # A leader may not know a topic yet that is in the metadata, or may be stale.
                await self._wait_before_retry(
                    failure, attempt, deadline_ms, not_retried=_CORRUPT_ONLY
                )
                await self._refresh_until(deadline_ms)
            except KafkaError as error:
                result.update(dict.fromkeys(remaining, error))
                break
        return result

    def _split(
        self, remaining: Mapping[TopicPartition, int], result: dict[TopicPartition, Any]
    ) -> dict[int, dict[TopicPartition, int]]:
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        metadata = self._client.metadata
        for partition, value in remaining.items():
            code = metadata.error(partition.topic)
            count = metadata.partition_count(partition.topic)
            leader = metadata.leader(partition)
            if code and KafkaError(code).code != ErrorCode.LEADER_NOT_AVAILABLE:
                result[partition] = KafkaError(code)
            elif partition.partition < 0 or 0 < count <= partition.partition:
                result[partition] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif leader >= 0:
                by_leader.setdefault(leader, {})[partition] = value
        return by_leader

    def _request_timeout_ms(self, timeout: float | None) -> int:
        check_timeout(timeout)
        limit: int = self._settings.request_timeout_ms
        return limit if timeout is None else min(limit, int(timeout * 1000))

    def closed_error(self) -> ClosedError:
        """Return the error of calls after `close`."""
        return self._client.closed_error()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._client.closed

    async def close(self) -> None:
        """Close all connections; idempotent."""
        if not self._client.closed:
            await self._runtime.aclose()


def _check_api_timeout(settings: ValidatedSettings) -> None:
    """Reject a default.api.timeout.ms below request.timeout.ms; adjust the default, as Kafka."""
    if settings.default_api_timeout_ms >= settings.request_timeout_ms:
        return
    if "default.api.timeout.ms" in settings.given:
        raise ConfigError(
            "The specified value of default.api.timeout.ms must be no smaller than the value of "
            "request.timeout.ms."
        )
    settings.default_api_timeout_ms = settings.request_timeout_ms


def topic_error_of(entry: Any, topic: object) -> KafkaError | None:
    """Return the error of an entry, None for code 0; a text that names no topic gets its name."""
    error = error_of(entry)
    if error is None or error.message != error.code.text:
        return error
    return topic_error(topic, entry.error_code)


def error_of(entry: Any) -> KafkaError | None:
    """Return the error of an entry of a response, None for code 0."""
    if not entry.error_code:
        return None
    return KafkaError(entry.error_code, getattr(entry, "error_message", None))


def raise_error(entry: Any) -> None:
    """Raise the error of an entry of a response, if it has one."""
    error = error_of(entry)
    if error is not None:
        raise error


def by_partition(
    topics: Iterable[Any], outcome: Callable[[Any], T], name: str = "name"
) -> dict[TopicPartition, T]:
    """Return the outcome of each partition of a response; `name` is the field of the topic."""
    return {
        TopicPartition(getattr(topic, name), partition.partition_index): outcome(partition)
        for topic in topics
        for partition in topic.partitions
    }


class _ControllerMetadata(ClusterMetadata):
    """Metadata with the controllers in place of brokers, and without topics."""

    def request(self) -> Any:
        """Build the request for the controllers."""
        self._stale = False
        return DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=CONTROLLERS
        )

    def update(self, response: Any, now_ms: int) -> None:
        """Apply a DescribeClusterResponse."""
        self.brokers = {
            broker.broker_id: Node(broker.broker_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.updated_ms = now_ms
        self._changed()


def _refuse_for_controllers(request: Request) -> None:
    """Raise KafkaError(UNSUPPORTED_ENDPOINT_TYPE) for a request that no controller serves."""
    if "controller" not in type(request).api_listeners:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            "This Admin API is not yet supported when communicating directly with the controller "
            "quorum.",
        )
