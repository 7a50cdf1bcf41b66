"""Requests about many things: handled in parts, one in each turn of the loop.

`PARTS` names, for each API whose response is a list of independent results, the arrays to cut the
request by and the arrays of the response to join. The parts are authorized and handled one after
the other, as if the client had sent them so; a request of a usual size is handled whole. What is
named many times is described once, where its description may be much larger than its name.

Where a request is more than the codec may decode in one turn, `decoded` decodes it in slices first.

Kafka: none; there each request occupies one of num.io.threads threads.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError, TooManyElements
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.sliced_decoding import SlicedDecoding
from ottla.purgatory.pending import Pending
from ottla.purgatory.work import NEXT_TURN

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterator, Mapping

    from ottla.protocol.schema import Request
    from ottla.protocol.walker import Reader
    from ottla.purgatory.work import Work
    from ottla.server.requests.context import Context

PER_TURN: Final = 500
"""Elements handled in a turn, at up to 10 µs each."""
PARTITIONS_IN_A_TURN: Final = 250
"""Partitions of Produce and Fetch that are appended or read in a turn, at up to 20 µs each."""
ELEMENTS_IN_A_TURN: Final = 5_000
"""Elements decoded in one turn with one call, at up to 2 µs each."""
ELEMENTS_AT_ONCE: Final = 200
"""Elements of a larger request that are decoded between two yields, at up to 5 µs each."""
COMPARED_AT_ONCE: Final = 1_000
"""Elements of a large request that are compared between two yields, at less than 1 µs each."""
MAX_ELEMENTS: Final = 20_000
"""Elements of a request: 10,000 topics of one partition. A client that names more is refused."""
MAX_PARTED_ELEMENTS: Final = 100_000
"""Elements of a request that is handled in parts."""
REPEATS_ANSWERED: Final = 10
"""Elements of a request in which repeats are answered each, as in Kafka: their cost is small."""
MAX_ELEMENT_SIZE: Final = 40_001
"""Elements nested in one that is not cut, and itself: 10,000 new partitions with three replicas."""
NESTED_AS_ONE: Final = 16
"""Replicas and the like of a partition that count as one more: usually they are fewer."""


class RequestCut(NamedTuple):
    """How the requests of an API are cut and their responses joined."""

    request: tuple[str, ...]
    """The array of the request to cut, and the arrays nested in it."""
    response: tuple[str, ...]
    """The array of the response, and the arrays nested in it that continue from part to part."""
    per_turn: int = PER_TURN
    key: Callable[[Any], Hashable] | None = None
    """Names what an element is about, so that it is answered once; None: answer each element."""
    unique: Callable[[Any], Hashable] | None = None
    """Names what only one element may be about: repeats are refused, so they stay in one part."""


def _itself(element: Any) -> Hashable:
    return element  # type: ignore[no-any-return] # a name


def _topic(element: Any) -> Hashable:
    return element.name, element.topic_id


def _resource(element: Any) -> Hashable:
    keys = element.configuration_keys
    return element.resource_type, element.resource_name, None if keys is None else tuple(keys)


def _name(element: Any) -> Hashable:
    return element.name  # type: ignore[no-any-return] # a text


def _deleted_topic(element: Any) -> Hashable:
    is_valid = (element.name is None) is bool(element.topic_id)  # else it is refused on its own
    return (element.name, element.topic_id) if is_valid else id(element)


def _changed_resource(element: Any) -> Hashable:
    return element.resource_type, element.resource_name


def _group_offsets(element: Any) -> Hashable:
    return element.group_id if element.topics is None else id(element)


_TOPICS: Final = ("topics", "partitions")
_OFFSETS: Final = RequestCut(("topics", "partition_indexes"), _TOPICS)
PARTS: Final[Mapping[int, tuple[RequestCut, ...]]] = {
    ApiKey.METADATA: (RequestCut(("topics",), ("topics",), key=_topic),),
    ApiKey.OFFSET_COMMIT: (RequestCut(_TOPICS, _TOPICS),),
    ApiKey.TXN_OFFSET_COMMIT: (RequestCut(_TOPICS, _TOPICS),),
    ApiKey.OFFSET_FETCH: (
        RequestCut(
            ("groups", "topics", "partition_indexes"), ("groups", *_TOPICS), 250, _group_offsets
        ),
        _OFFSETS,
    ),
    ApiKey.FIND_COORDINATOR: (RequestCut(("coordinator_keys",), ("coordinators",), key=_itself),),
    ApiKey.DESCRIBE_GROUPS: (RequestCut(("groups",), ("groups",), 250, _itself),),
    ApiKey.DELETE_GROUPS: (RequestCut(("groups_names",), ("results",), 100),),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (RequestCut(("group_ids",), ("groups",), 250, _itself),),
    ApiKey.SHARE_GROUP_DESCRIBE: (RequestCut(("group_ids",), ("groups",), 250, _itself),),
    ApiKey.STREAMS_GROUP_DESCRIBE: (RequestCut(("group_ids",), ("groups",), 250, _itself),),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        RequestCut(("transactional_ids",), ("transaction_states",), key=_itself),
    ),
    ApiKey.CREATE_TOPICS: (RequestCut(("topics",), ("topics",), unique=_name),),
    ApiKey.DELETE_TOPICS: (
        RequestCut(("topics",), ("responses",), unique=_deleted_topic),
        RequestCut(("topic_names",), ("responses",), unique=_itself),
    ),
    ApiKey.CREATE_PARTITIONS: (RequestCut(("topics",), ("results",), unique=_name),),
    ApiKey.DELETE_RECORDS: (RequestCut(_TOPICS, _TOPICS, 200),),
    ApiKey.LIST_OFFSETS: (RequestCut(_TOPICS, _TOPICS, 1_000),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (RequestCut(_TOPICS, _TOPICS),),
    ApiKey.DESCRIBE_PRODUCERS: (_OFFSETS,),
    ApiKey.WRITE_TXN_MARKERS: (
        RequestCut(("markers", "topics", "partition_indexes"), ("markers", *_TOPICS), 750),
    ),
    ApiKey.DESCRIBE_CONFIGS: (RequestCut(("resources",), ("results",), key=_resource),),
    ApiKey.ALTER_CONFIGS: (RequestCut(("resources",), ("responses",), unique=_changed_resource),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        RequestCut(("resources",), ("responses",), unique=_changed_resource),
    ),
    ApiKey.CREATE_ACLS: (RequestCut(("creations",), ("results",), 200),),
    ApiKey.DELETE_ACLS: (RequestCut(("filters",), ("filter_results",), 50),),
    ApiKey.ALTER_CLIENT_QUOTAS: (RequestCut(("entries",), ("entries",)),),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (
        RequestCut(("dirs", *_TOPICS), ("results", "partitions"), 200),
    ),
    ApiKey.ELECT_LEADERS: (
        RequestCut(
            ("topic_partitions", "partitions"), ("replica_election_results", "partition_result")
        ),
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (RequestCut(_TOPICS, ("responses", "partitions")),),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (_OFFSETS,),
    ApiKey.ALTER_PARTITION: (RequestCut(_TOPICS, _TOPICS),),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: (
        RequestCut(("directories", *_TOPICS), ("directories", *_TOPICS)),
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
        RequestCut(("groups", *_TOPICS), ("groups", *_TOPICS), 250),
    ),
    ApiKey.OFFSET_DELETE: (RequestCut(_TOPICS, _TOPICS),),
}
"""By API key; of several ways, the first whose array is not empty."""


_MAX_SMALL: Final = 1_000
_MAX_OF: Final[Mapping[int, int]] = {
    # of one partition, or of the endpoints and features of one node
    ApiKey.VOTE: _MAX_SMALL,
    ApiKey.BEGIN_QUORUM_EPOCH: _MAX_SMALL,
    ApiKey.END_QUORUM_EPOCH: _MAX_SMALL,
    ApiKey.FETCH_SNAPSHOT: _MAX_SMALL,
    ApiKey.DESCRIBE_QUORUM: _MAX_SMALL,
    ApiKey.ADD_RAFT_VOTER: _MAX_SMALL,
    ApiKey.UPDATE_RAFT_VOTER: _MAX_SMALL,
    ApiKey.BROKER_REGISTRATION: _MAX_SMALL,
    ApiKey.CONTROLLER_REGISTRATION: _MAX_SMALL,
    ApiKey.BROKER_HEARTBEAT: _MAX_SMALL,
    ApiKey.UPDATE_FEATURES: _MAX_SMALL,
    # of one member, whose topology is validated in one turn
    ApiKey.STREAMS_GROUP_HEARTBEAT: 5_000,
    # of one transaction, whose partitions are added together or not at all: 10,000 of 2,000 topics
    ApiKey.ADD_PARTITIONS_TO_TXN: 12_001,
}


def max_elements(key: int) -> int:
    """Return how many elements a request of an API may announce."""
    return MAX_PARTED_ELEMENTS if key in PARTS else _MAX_OF.get(key, MAX_ELEMENTS)


class LargeRequest(TooManyElements):
    """A request that is too large to be decoded in one turn; `decoded` decodes it in several.

    Where nothing is prepared for that, it is refused.
    """

    def __init__(self, request: type[Request], version: int, reader: Reader) -> None:
        super().__init__(f"{request.__name__} announces too many elements")
        bound = max_elements(request.message_key)
        source, position = reader.source, reader.position
        self.decoding = SlicedDecoding(request, version, source, position, bound)


def decoded(ctx: Context, large: LargeRequest) -> Pending[Any]:
    """Decode a request in slices; CorruptMessage where it is none, or announces too much."""
    return ctx.broker.worker.run(large.decoding.run(ELEMENTS_AT_ONCE))


def in_parts(ctx: Context, request: Any, handle: Callable[[Any], Any]) -> Any:
    """Handle a request: whole, or in parts where it is large.

    handle(request) authorizes and answers, as a handler does; an error of a part fails the request.
    """
    for parts in PARTS.get(ctx.api_key, ()):
        items = getattr(request, parts.request[0])
        if items:
            pieces = _Cut(parts).pieces(request)
            first = next(pieces)
            if first is request:
                return handle(request)
            work = _handle_parts(ctx, parts, chain((first,), pieces), handle)
            return ctx.broker.worker.run(work)
    return handle(request)


def _handle_parts(
    ctx: Context, cut: RequestCut, pieces: Iterator[Any], handle: Callable[[Any], Any]
) -> Work[Any]:
    """Handle one part in a turn, and join the responses.

    A response of another type, or with an error of its own, is about the whole request.
    """
    response: Any = None

    def handle_part(part: Any) -> Any:
        if type(part) is _Refused:
            return ctx.api.form.fail(part.request, part.error, ctx.api_version)
        if ctx.quota_use is None:
            return handle(part)
        return ctx.quota_use.measured(partial(handle, part))

    for part in pieces:
        if part is None:
            yield
            continue
        if response is not None:
            yield NEXT_TURN
        result = handle_part(part)
        answered = (yield result) if isinstance(result, Pending) else result
        if response is None:
            response = answered
        elif type(response) is not type(answered):
            return answered
        else:
            _join(response, answered, cut.response)
        if getattr(answered, "error_code", 0):
            return answered
    return response


class _Refused(NamedTuple):
    """A part with one element, which is too large to be handled in one turn."""

    request: Any
    error: KafkaError


class _Cut:
    """Cuts a request into parts of at most `per_turn` elements."""

    def __init__(self, parts: RequestCut) -> None:
        self._path = parts.request
        self._limit = parts.per_turn
        self._key = parts.key
        self._unique = parts.unique
        self._seen: set[Hashable] = set()
        self._error: KafkaError | None = None
        """Refuses what `_cut` yields next."""

    def pieces(self, request: Any) -> Iterator[Any]:
        """Yield the parts; the request itself where it is small; None between two steps.

        An element that is too large is refused alone: to refuse all takes as long as to handle all.
        """
        name = self._path[0]
        items = getattr(request, name)
        if len(items) <= self._limit and self._is_small(items) and self._has_no_repeats(items):
            yield request
            return
        if self._unique is not None:
            items = yield from self._together(items, self._unique)
        for cut in self._cut(items, self._path[1:], self._key):
            piece = copy(request)
            setattr(piece, name, cut)
            error, self._error = self._error, None
            yield piece if error is None else _Refused(piece, error)

    def _together(
        self, items: list[Any], unique: Callable[[Any], Hashable]
    ) -> Generator[None, None, list[Any]]:
        """Return the elements with equal ones side by side, at most a part of each."""
        equal: dict[Hashable, list[Any]] = {}
        for number, item in enumerate(items, 1):
            repeats = equal.setdefault(unique(item), [])
            if len(repeats) < self._limit:
                repeats.append(item)
            if number % COMPARED_AT_ONCE == 0:
                yield
        return [item for repeats in equal.values() for item in repeats]

    def _is_repeat(self, chunk: list[Any], item: Any) -> bool:
        return self._unique is not None and self._unique(chunk[-1]) == self._unique(item)

    def _has_no_repeats(self, items: list[Any]) -> bool:
        if self._key is None or len(items) <= REPEATS_ANSWERED:
            return True
        return len(set(map(self._key, items))) == len(items)

    def _is_small(self, items: list[Any]) -> bool:
        """Whether all elements fit into one part; examines no more of them than that."""
        left = self._limit
        for item in items:
            left -= _size(item, self._path[1:], left)
            if left < 0:
                return False
        return True

    def _cut(
        self, items: list[Any], path: tuple[str, ...], key: Callable[[Any], Hashable] | None
    ) -> Iterator[list[Any]]:
        chunk: list[Any] = []
        left = self._limit
        for item in items:
            if key is not None:
                what = key(item)
                if what in self._seen:
                    continue
                self._seen.add(what)
            size = _size(item, path, self._limit)
            if size > left and chunk and not self._is_repeat(chunk, item):
                yield chunk
                chunk, left = [], self._limit
            if size > self._limit and path and getattr(item, path[0]):
                for nested in self._cut(getattr(item, path[0]), path[1:], None):
                    part = copy(item)
                    setattr(part, path[0], nested)
                    yield [part]
            elif size > MAX_ELEMENT_SIZE:
                text = f"{size} elements in one of {self._path[0]}, more than {MAX_ELEMENT_SIZE}"
                self._error = KafkaError(ErrorCode.INVALID_REQUEST, text)
                yield [item]
            else:
                chunk.append(item)
                left -= size
        if chunk:
            yield chunk


def _size(item: Any, path: tuple[str, ...], limit: int) -> int:
    """Return the elements of an element: itself and what is nested in it.

    It counts no further than just beyond the limit: a large element is measured in one turn.
    """
    if not path:
        return _nested_size(item)
    nested = getattr(item, path[0]) or ()
    size = 1 + len(nested)
    if len(path) > 1:
        for one in nested:
            if size > limit:
                break
            size += _size(one, path[1:], limit - size) - 1
    elif nested and any(one.is_array for one in getattr(type(nested[0]), "fields", ())):
        for one in nested:
            if size > limit:
                break
            size += (_nested_size(one) - 1) // NESTED_AS_ONE
    return size


def _nested_size(item: Any) -> int:
    """Return the elements of one that is not cut, however deep; no further than the bound."""
    size = 1
    for field in getattr(type(item), "fields", ()):
        if not field.is_array:
            continue
        nested = getattr(item, field.name) or ()
        size += len(nested)
        for one in nested if field.struct is not None else ():
            if size > MAX_ELEMENT_SIZE:
                return size
            size += _nested_size(one) - 1
    return size


def _join(kept: Any, more: Any, path: tuple[str, ...]) -> None:
    """Add the results of a part; the first may continue the last one so far."""
    if hasattr(kept, "throttle_time_ms"):
        kept.throttle_time_ms = max(kept.throttle_time_ms, more.throttle_time_ms)
    results, added = getattr(kept, path[0]), getattr(more, path[0])
    if len(path) > 1 and results and added and _continues(results[-1], added[0], path[1]):
        _join(results[-1], added[0], path[1:])
        added = added[1:]
    results.extend(added)


def _continues(last: Any, following: Any, nested: str) -> bool:
    """Whether two results differ in the nested array alone."""
    return all(
        getattr(last, field.name) == getattr(following, field.name)
        for field in type(last).fields
        if field.name != nested
    )
