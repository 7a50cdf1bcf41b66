"""Consumer groups under bad input: rights, costly patterns, huge subscriptions, full groups."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

from ottla.coordinator.bounded_patterns import BoundedPattern
from ottla.coordinator.group import ConsumerGroupConfig, RequestContext
from ottla.coordinator.group.consumer import patterns
from ottla.coordinator.group.consumer.patterns import MIN_INTERVAL_MS
from ottla.errors import ErrorCode
from ottla.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.coordinator.harness import World


def world(**settings: Any) -> World:
    made = World()
    made.consumer_config = ConsumerGroupConfig(assignment_interval_ms=0, **settings)
    return made.elect()


def send(made: World, member_id: str = "a", **fields: Any) -> Any:
    may_describe = fields.pop("may_describe", lambda _name: True)
    context = RequestContext("client", "/127.0.0.1", 1, may_describe)
    values = {
        "member_epoch": 0,
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": [],
        "topic_partitions": [],
        **fields,
    }
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, **values)
    pending = made.coordinator.consumer_group_heartbeat(request, context)
    assert pending.done
    return pending.value


def resolved(made: World) -> dict[str, tuple[str, ...]]:
    group = made.shard().consumer.get("g")
    return {pattern: one.topics for pattern, one in group.resolved.items()}


def test_a_pattern_finds_what_the_client_may_describe() -> None:
    """Topics that it may not describe are left out, and come with the right to see them."""
    made = world(regex_refresh_interval_ms=20_000)
    send(made, subscribed_topic_regex=".", may_describe=lambda name: name != "u")
    made.advance(10)
    assert resolved(made) == {".": ("t",)}
    made.advance(MIN_INTERVAL_MS + 1)
    idle(made)
    made.advance(10)
    assert resolved(made) == {".": ("t",)}, "it is not refreshed before the interval"
    made.advance(20_000)
    idle(made)
    made.advance(10)
    assert resolved(made) == {".": ("t", "u")}


def idle(made: World) -> None:
    """Send a heartbeat without news."""
    epoch = made.shard().consumer.get("g").member("a").member_epoch
    fields: dict[str, Any] = {"rebalance_timeout_ms": -1, "subscribed_topic_names": None}
    answer = send(made, member_epoch=epoch, topic_partitions=None, **fields)
    assert not answer.error_code


@pytest.mark.parametrize("pattern", ["(a*)*b", "(.*)*.*.*x", "(a|a)*c", "(t?){50}t{50}"])
def test_a_pattern_that_explodes_elsewhere_is_linear(pattern: str) -> None:
    """RE2 matches 2,000 long names in the time of any other pattern."""
    made = world()
    made.topics.ids = {f"{'a' * 240}-{i}": made.topics.id_of(str(i)) for i in range(2_000)}
    start = time.process_time()
    send(made, subscribed_topic_regex=pattern)
    made.advance(1_000)
    assert resolved(made) == {pattern: ()}
    assert time.process_time() - start < 30


def test_a_costly_pattern_is_matched_with_few_topics_in_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A match of some ms is one of few in its turn, as every other client waits for it."""
    made = world()
    made.topics.ids = {f"{'a' * 240}-{i}": made.topics.id_of(str(i)) for i in range(50)}
    pattern = "(.?.?){250}"
    send(made, subscribed_topic_regex=pattern)
    costs: Counter[int] = Counter()
    matches = BoundedPattern.matches

    def counted(self: BoundedPattern, name: str) -> bool:
        costs[made.clock.time_ms] += self.cost(name)
        return matches(self, name)

    monkeypatch.setattr(BoundedPattern, "matches", counted)
    made.advance(1_000)
    assert len(resolved(made)[pattern]) == 50
    assert len(costs) == 50, "each match costs more than a turn may"


@pytest.mark.parametrize("pattern", ["x{1000}" * 3_000, r"\pL{1000}", "(.*?.*?){1000}"])
def test_a_pattern_that_would_stop_the_loop_is_refused(pattern: str) -> None:
    """To compile it, or to match one topic, would take longer than a turn of the loop may."""
    answer = send(world(), subscribed_topic_regex=pattern)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_many_patterns_are_compiled_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """To compile one takes as long as to match it with fifty topics."""
    made = world()
    count = 60
    for number in range(count):
        send(made, f"m{number}", subscribed_topic_regex=f"(t|{number})")
    compiled: list[int] = []
    compile_pattern = patterns.compiled

    def counted(pattern: str) -> Any:
        compiled.append(made.clock.time_ms)
        return compile_pattern(pattern)

    made.advance(MIN_INTERVAL_MS + 10)
    monkeypatch.setattr(patterns, "compiled", counted)
    send(made, "m0", subscribed_topic_regex="(t|0)")
    made.advance(100)
    assert len(compiled) == count
    assert max(Counter(compiled).values()) <= 20
    assert resolved(made) == {f"(t|{number})": ("t",) for number in range(count)}


def test_a_resolution_that_fails_begins_again() -> None:
    """A fault in the check of rights does not keep the group without topics for good."""
    made = world()
    faults = [RuntimeError("no rights are known")]

    def may_describe(_name: str) -> bool:
        if faults:
            raise faults.pop()
        return True

    send(made, subscribed_topic_regex="t", may_describe=may_describe)
    with pytest.raises(RuntimeError):
        made.advance(10)
    idle(made)
    made.advance(10)
    assert resolved(made) == {"t": ("t",)}


def test_a_subscription_of_ten_megabytes_is_refused_by_the_log() -> None:
    """It exceeds a record batch: the error is Kafka's, the group does not exist afterwards."""
    made = world()
    names = [f"{index:0>50}" for index in range(200_000)]
    answer = send(made, subscribed_topic_names=names)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert made.shard().consumer.find("g") is None
    assert send(made, subscribed_topic_names=["t"]).error_code == ErrorCode.NONE


def test_a_full_group_refuses_new_members_only() -> None:
    """GROUP_MAX_SIZE_REACHED; members stay, and one that leaves makes room."""
    made = world(max_size=2)
    for name in ("a", "b"):
        assert not send(made, name, subscribed_topic_names=["t"]).error_code
    refused = send(made, "c", subscribed_topic_names=["t"])
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    unknown = send(made, "c", member_epoch=3)
    assert unknown.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not send(made, "a", subscribed_topic_names=["u"]).error_code
    assert not send(made, "b", member_epoch=-1).error_code
    assert not send(made, "c", subscribed_topic_names=["t"]).error_code
