"""Requests about many things: cut into parts of a bounded size, and joined to one response."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey, request_class
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.apis.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.purgatory.pending import Pending
from ottla.purgatory.work import Worker
from ottla.server.requests import parts
from ottla.server.requests.api import served_apis
from ottla.server.requests.parts import MAX_ELEMENT_SIZE, PARTS, RequestCut, in_parts, max_elements
from ottla.testing.cluster import Cluster
from tests.server.reliability.largest_requests import array_paths
from tests.server.reliability.largest_requests import filled as filled_at
from tests.server.requests.untrusted_clients import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.protocol.schema import StructMeta

DeletedTopic = OffsetDeleteResponse.OffsetDeleteResponseTopic
WAYS = [(key, parts) for key, ways in PARTS.items() for parts in ways]
BOUND = 3
"""Elements in a part, in tests of the way of cutting."""


class Turns:
    """The turns of a loop, taken one by one; stands in for the context of a request."""

    def __init__(self, key: int) -> None:
        self._turns: list[Callable[[], None]] = []
        self.api_key = key
        self.api = served_apis()[key] if key in served_apis() else served_apis("controller")[key]
        self.api_version = self.api.highest
        self.quota_use = None
        self.broker = SimpleNamespace(worker=Worker(self._turns.append))

    def answer(self, request: Any, handle: Callable[[Any], Any]) -> tuple[Any, int]:
        """Return the response to a request, and how many turns it took."""
        ctx: Any = self
        result = in_parts(ctx, request, handle)
        turns = 1
        while isinstance(result, Pending) and not result.done:
            self._turns.pop(0)()
            turns += 1
        return (result.value if isinstance(result, Pending) else result), turns


def element_of(cls: StructMeta, name: str) -> Any:
    """Return the class of the elements of an array; None where they are single values."""
    return next(one for one in cls.fields if one.name == name).struct


def filled(cls: Any, path: tuple[str, ...], numbers: Iterator[int]) -> Any:
    """Return a struct with four elements in each array of a path, none like another."""
    struct = cls()
    inner = element_of(cls, path[0])
    if len(path) > 1:
        items = [filled(inner, path[1:], numbers) for _ in range(4)]
    elif inner is None:
        is_text = next(one for one in cls.fields if one.name == path[0]).element == "str"
        items = [str(next(numbers)) if is_text else next(numbers) for _ in range(4)]
    else:
        items = [marked(inner, next(numbers)) for _ in range(4)]
    setattr(struct, path[0], items)
    return struct


def marked(cls: Any, number: int) -> Any:
    """Return a struct with a number or a text of its own."""
    struct = cls()
    for field in cls.fields:
        if field.element == "str" and not field.is_array:
            setattr(struct, field.name, str(number))
            return struct
        if field.element.startswith("int") and not field.is_array:
            setattr(struct, field.name, number)
            return struct
    return struct


def leaves(struct: Any, path: tuple[str, ...]) -> list[Any]:
    """Return the innermost elements."""
    items = getattr(struct, path[0])
    return items if len(path) == 1 else [one for item in items for one in leaves(item, path[1:])]


@pytest.mark.parametrize(("key", "parts"), WAYS)
def test_parts_are_the_whole(monkeypatch: pytest.MonkeyPatch, key: int, parts: RequestCut) -> None:
    """Each API: the parts name all elements, in their order, and none has more than its share."""
    monkeypatch.setitem(PARTS, key, (parts._replace(per_turn=BOUND),))
    cls = request_class(ApiKey(key))
    request = filled(cls, parts.request, iter(range(10_000)))
    seen: list[Any] = []

    def handle(part: Any) -> Any:
        found = leaves(part, parts.request)
        assert 0 < len(found) <= BOUND
        seen.extend(found)
        return empty_response(parts)

    Turns(key).answer(request, handle)
    assert seen == leaves(request, parts.request)


def empty_response(parts: RequestCut) -> Any:
    """Return what stands in for a response without results."""
    return SimpleNamespace(**{parts.response[0]: []})


def deleted(request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Answer each partition with its number as the error code."""
    partition = DeletedTopic.OffsetDeleteResponsePartition
    return OffsetDeleteResponse(
        topics=[
            DeletedTopic(
                name=topic.name,
                partitions=[
                    partition(
                        partition_index=one.partition_index, error_code=one.partition_index % 7
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def test_a_topic_that_is_cut_is_one_in_the_response() -> None:
    """Thousands of partitions of one topic, then of others: the response of the whole."""
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    partition = topic.OffsetDeleteRequestPartition
    request = OffsetDeleteRequest(
        group_id="g",
        topics=[
            topic(name=name, partitions=[partition(partition_index=i) for i in range(count)])
            for name, count in (("a", 3), ("b", 1700), ("c", 1), ("d", 800))
        ],
    )
    response, turns = Turns(ApiKey.OFFSET_DELETE).answer(request, deleted)
    assert response == deleted(request)
    assert turns >= 5


def test_waiting_parts_follow_each_other() -> None:
    """A part is handled when the one before it is answered."""
    request = FindCoordinatorRequest(coordinator_keys=[str(i) for i in range(1200)])
    waiting: list[tuple[Pending[Any], Any]] = []

    def handle(part: Any) -> Pending[Any]:
        waiting.append((Pending(), part))
        return waiting[-1][0]

    turns = Turns(ApiKey.FIND_COORDINATOR)
    ctx: Any = turns
    answer = in_parts(ctx, request, handle)
    coordinator = FindCoordinatorResponse.Coordinator
    for _ in range(3):
        ((pending, part),) = waiting
        waiting.clear()
        named = [
            coordinator(key=key, node_id=1, host="", port=1, error_message=None)
            for key in part.coordinator_keys
        ]
        pending.complete(FindCoordinatorResponse(coordinators=named))
        for turn in turns._turns:
            turn()
        turns._turns.clear()
    assert [one.key for one in answer.value.coordinators] == request.coordinator_keys


def test_what_is_named_many_times_is_answered_once() -> None:
    """A resource costs its description once where it is named often; its settings tell it apart."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    once = resource(resource_type=4, resource_name="1", configuration_keys=None)
    other = resource(resource_type=4, resource_name="1", configuration_keys=["a"])
    for count, answered in ((1, [once, other]), (4, [once, other] * 4), (2000, [once, other])):
        request = DescribeConfigsRequest(resources=[once, other] * count)
        seen: list[Any] = []

        def handle(part: Any, seen: list[Any] = seen) -> Any:
            seen.extend(part.resources)
            return SimpleNamespace(results=[])

        Turns(ApiKey.DESCRIBE_CONFIGS).answer(request, handle)
        assert seen == answered


@pytest.mark.parametrize("count", [2, 600])
def test_names_that_may_stand_once_are_decided_together(count: int) -> None:
    """Equal names of two parts would each be carried out, though they must be refused."""
    topic = CreateTopicsRequest.CreatableTopic
    names = [f"t{number}" for number in range(1200)]
    topics = [
        topic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in (*names, *["t0"] * count, "t700")
    ]
    seen: list[list[str]] = []

    def handle(part: Any) -> Any:
        seen.append([one.name for one in part.topics])
        return SimpleNamespace(topics=[])

    Turns(ApiKey.CREATE_TOPICS).answer(CreateTopicsRequest(topics=topics), handle)
    assert [name for part in seen for name in dict.fromkeys(part)] == names
    assert [part.count("t0") for part in seen] == [min(count + 1, 500), *[0] * (len(seen) - 1)]
    assert sorted(part.count("t700") for part in seen)[-2:] == [0, 2]


def test_an_error_ends_the_request() -> None:
    """An exception fails it; a response with an error of its own is the response."""
    request = FindCoordinatorRequest(coordinator_keys=[str(i) for i in range(1200)])

    def refuse(_part: Any) -> Any:
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    turns = Turns(ApiKey.FIND_COORDINATOR)
    with pytest.raises(KafkaError):
        turns.answer(request, refuse)
    failed = FindCoordinatorResponse(error_code=7)
    answers = [FindCoordinatorResponse(coordinators=[]), failed]
    response, count = Turns(ApiKey.FIND_COORDINATOR).answer(request, lambda _: answers.pop(0))
    assert response is failed
    assert (count, answers) == (2, [])


def test_an_element_that_cannot_be_cut_is_bounded() -> None:
    """One resource with more settings than any has is refused, not worked off in one turn.

    It alone: the others are answered, since to refuse thousands would take one long turn.
    """
    resource = DescribeConfigsRequest.DescribeConfigsResource
    names = {"t": ["n"], "large": ["n"] * MAX_ELEMENT_SIZE, "u": ["n"]}
    request = DescribeConfigsRequest(
        resources=[
            resource(resource_type=2, resource_name=name, configuration_keys=keys)
            for name, keys in names.items()
        ]
    )

    def handle(part: Any) -> DescribeConfigsResponse:
        result = DescribeConfigsResponse.DescribeConfigsResult
        return DescribeConfigsResponse(
            results=[
                result(
                    resource_type=2, resource_name=one.resource_name, configs=[], error_message=""
                )
                for one in part.resources
            ]
        )

    response, _ = Turns(ApiKey.DESCRIBE_CONFIGS).answer(request, handle)
    codes = [(one.resource_name, one.error_code) for one in response.results]
    assert codes == [("t", 0), ("large", ErrorCode.INVALID_REQUEST), ("u", 0)]


def test_a_node_answers_large_requests_and_refuses_absurd_ones() -> None:
    """30,000 keys are decoded and answered in slices; 2.5 million names close the connection."""
    keys = [f"g{i}" for i in range(30_000)]
    with Cluster() as cluster:
        peer = Peer(cluster.bootstrap)
        answer = peer.ask(FindCoordinatorRequest(coordinator_keys=keys), 4)
        assert [one.key for one in answer.coordinators] == keys
        count = 2_500_000
        body = b"\0\3\0\1\0\0\0\1\0\1x" + count.to_bytes(4, "big") + bytes(2 * count)
        assert peer.is_closed_after(len(body).to_bytes(4, "big") + body)
        assert Peer(cluster.bootstrap).is_served()


def count_of(message: Any) -> int:
    """Return the elements of all arrays of a message."""
    fields = [one for one in getattr(type(message), "fields", ()) if one.is_array]
    arrays = [getattr(message, one.name) or () for one in fields]
    return sum(len(array) + sum(map(count_of, array)) for array in arrays)


@pytest.mark.parametrize(("key", "cut"), WAYS)
def test_no_part_has_more_elements_than_the_largest_topic(
    key: int, cut: RequestCut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever in a request they are: what is nested deeper than the cut is counted as well."""
    bound = 1_100
    monkeypatch.setattr(parts, "MAX_ELEMENT_SIZE", bound)
    monkeypatch.setattr(parts, "NESTED_AS_ONE", 2)
    request_type = request_class(ApiKey(key))
    for path in array_paths(request_type, request_type.versions.highest):
        if path[0].name != cut.request[0]:
            continue
        request = filled_at(request_type, path, 4 * bound, "t")
        counts: list[int] = []

        def handle(part: Any, counts: list[int] = counts) -> Any:
            counts.append(count_of(part))
            return SimpleNamespace(**{cut.response[0]: []})

        response, _ = Turns(key).answer(request, handle)
        is_refused = bool(getattr(response, "error_code", 0) or getattr(response, cut.response[0]))
        if is_refused:
            assert not counts, "the one element is refused"
        else:
            assert sum(counts) >= 4 * bound or cut.key or cut.unique, "repeats are answered once"
        assert max(counts, default=0) <= bound + len(path), path


@pytest.mark.parametrize(
    ("key", "path", "count"),
    [
        (ApiKey.METADATA, ("topics",), 50_000),
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS, ("topics",), 20_000),
        (ApiKey.DESCRIBE_CONFIGS, ("resources",), 50_000),
        (ApiKey.DELETE_TOPICS, ("topics",), 50_000),
        (ApiKey.CREATE_ACLS, ("creations",), 50_000),
        (ApiKey.OFFSET_FETCH, ("groups", "topics", "partition_indexes"), 50_000),
        (ApiKey.LIST_OFFSETS, ("topics", "partitions"), 50_000),
        (ApiKey.ADD_PARTITIONS_TO_TXN, ("v3_and_below_topics", "partitions"), 10_000),
        (ApiKey.JOIN_GROUP, ("protocols",), 100),
        (ApiKey.LEAVE_GROUP, ("members",), 5_000),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, ("topic_partitions", "partitions"), 10_000),
    ],
)
def test_what_clients_send_is_allowed(key: ApiKey, path: tuple[str, ...], count: int) -> None:
    """As clients of large clusters do: with the elements around those of the innermost array."""
    request_type: Any = request_class(key)
    (fields,) = {
        tuple(one.name for one in fields): fields
        for version in range(request_type.versions.lowest, request_type.versions.highest + 1)
        for fields in array_paths(request_type, version)
        if tuple(one.name for one in fields) == path
    }.values()
    assert count_of(filled_at(request_type, fields, count, "t")) <= max_elements(key)
