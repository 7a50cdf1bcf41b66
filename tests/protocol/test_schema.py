"""The notation: constructors, defaults, equality, what repr hides."""

from __future__ import annotations

import pytest

from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.schema import EMPTY, Struct, field, int32, parse_versions
from ottla.types import ZERO_UUID


class Part(Struct):
    size: int32 = 3


class Whole(Struct, key=7, versions="0-2", flexible="2+"):
    number: int32
    maybe: str | None = field("1+", default=None)
    parts: list[Part] = field(default=EMPTY)
    one: Part = field("1+", default=EMPTY, ignorable=True)
    perhaps: Part | None = field(default=None)


def test_fields_left_out_hold_their_defaults() -> None:
    """Zero of the type, the default given, an empty list, a struct of defaults."""
    made = Whole(number=1)
    assert (made.number, made.maybe, made.parts, made.one, made.perhaps) == (
        1,
        None,
        [],
        Part(size=3),
        None,
    )


def test_mutable_defaults_are_not_shared() -> None:
    """Two messages never hold the same list or the same struct."""
    one, other = Whole(number=0), Whole(number=0)
    one.parts.append(Part())
    one.one.size = 9
    assert other.parts == []
    assert other.one.size == 3


def test_an_unknown_field_is_refused() -> None:
    """A misspelt field raises in constructor and assignment."""
    with pytest.raises(TypeError):
        Whole(number=0, nmber=1)  # type: ignore[call-arg] # the mistake to be caught
    with pytest.raises(AttributeError):
        Whole(number=0).nmber = 1  # type: ignore[attr-defined] # the mistake to be caught


def test_messages_are_equal_by_class_and_fields() -> None:
    """Equality is deep; other classes are never equal."""
    assert Whole(number=1, parts=[Part(size=1)]) == Whole(number=1, parts=[Part(size=1)])
    assert Whole(number=1, parts=[Part(size=1)]) != Whole(number=1, parts=[Part(size=2)])
    assert Part() != Whole(number=3)


def test_class_keywords_stay_apart_from_fields_of_the_same_name() -> None:
    """FindCoordinator has a field `key`; the class knows its API key all the same."""
    assert FindCoordinatorRequest.message_key == 10
    assert FindCoordinatorRequest(key="group").key == "group"
    assert Whole.message_key == 7
    assert Whole.flexible == parse_versions("2+")


def test_sensitive_fields_are_hidden() -> None:
    """Tokens and passwords do not reach logs through repr."""
    assert "secret" not in repr(SaslAuthenticateRequest(auth_bytes=b"secret"))


def test_repr_names_the_fields() -> None:
    """A message prints as the call that makes it."""
    assert repr(Part(size=2)) == "Part(size=2)"


def test_kafka_defaults_are_known() -> None:
    """A few defaults that are not the zero of their type."""
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    assert (request.max_bytes, request.session_epoch, request.replica_id) == (2**31 - 1, -1, -1)
    assert request.replica_state.replica_epoch == -1
    topic = FetchRequest.FetchTopic(partitions=[])
    assert (topic.topic, topic.topic_id) == ("", ZERO_UUID)


def test_a_struct_that_is_nowhere_is_named() -> None:
    """An annotation without a class is reported with its place."""

    class Lost(Struct):
        part: Nowhere  # type: ignore[name-defined] # noqa: F821 - the mistake to be caught

    with pytest.raises(TypeError, match="Lost: no struct named Nowhere"):
        _ = Lost.fields
