"""The walker, compiled and uncompiled, compared with the codec's generated functions."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from random import Random
from struct import error as struct_error
from typing import TYPE_CHECKING, Any

import pytest

import ottla.protocol
from ottla.errors import CorruptMessage, UnsupportedVersion
from ottla.protocol import codec, plans, walker
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.produce import ProduceRequest, ProduceResponse
from ottla.protocol.tagged_fields import keep_unknown
from ottla.types import FileSlice
from tests.protocol.messages import message_classes, random_message

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from ottla.protocol.schema import Struct, StructMeta

CLASSES = message_classes()
Request: Any = ProduceRequest
Response: Any = ProduceResponse
Fetch: Any = FetchRequest
"""Without types: these tests leave out and mistake what a caller may not."""
REFUSALS = (CorruptMessage, UnsupportedVersion, IndexError, struct_error, ValueError)


def _load(name: str) -> ModuleType:
    path = Path(ottla.protocol.__path__[0]) / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"plain_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _plain() -> tuple[ModuleType, ModuleType]:
    """Load both modules from their text, though they may be installed compiled."""
    installed = sys.modules["ottla.protocol.walker"]
    plain = _load("walker")
    sys.modules["ottla.protocol.walker"] = plain
    try:
        return plain, _load("plans")
    finally:
        sys.modules["ottla.protocol.walker"] = installed


WALKS = {"installed": (walker, plans), "plain": _plain()}


def outcome(work: Callable[[], Any]) -> Any:
    """Return what comes out, or that it was refused."""
    try:
        return work()
    except REFUSALS:
        return "refused"


def walked(which: str, message: Struct, version: int) -> bytes:
    """Encode by a walk."""
    walk, made = WALKS[which]
    out: list[Any] = []
    walk.write(made.plan_of(type(message), version), message, out)
    return b"".join(out)


encoder = cache(codec.write_encoder)
decoder = cache(codec.write_decoder)


def written(message: Struct, version: int) -> bytes:
    """Encode by a written function."""
    out: list[Any] = []
    encoder(type(message), version)(message, out)
    return b"".join(out)


def read_both(
    which: str, cls: StructMeta, version: int, data: bytes, allowance: int = walker.UNBOUNDED
) -> tuple[Any, Any]:
    """Decode by a walk and by a written function."""
    walk, made = WALKS[which]
    view = memoryview(data)
    plan, decode = made.plan_of(cls, version), decoder(cls, version)
    walk_result = outcome(lambda: walk.read(plan, view, 0, len(view), allowance))
    return walk_result, outcome(lambda: decode(view, 0, len(view), allowance))


@pytest.mark.parametrize("which", WALKS)
def test_same_bytes_and_objects(which: str) -> None:
    """A random message of each class at each version: equal bytes, objects and ends."""
    for name, cls in CLASSES.items():
        rng = Random(name)
        for version in range(cls.versions.lowest, cls.versions.highest + 1):
            message = random_message(cls, version, rng)
            data = written(message, version)
            assert walked(which, message, version) == data, (name, version)
            by_walk, by_function = read_both(which, cls, version, data)
            assert by_walk == by_function == (message, len(data)), (name, version)


@pytest.mark.parametrize("which", WALKS)
def test_same_refusals(which: str) -> None:
    """Truncated and modified messages: both refuse, or both decode equally."""
    for name, cls in CLASSES.items():
        rng, version = Random(name), cls.versions.highest
        data = written(random_message(cls, version, rng), version)
        for _ in range(8):
            position = rng.randrange(len(data) + 1)
            wrong = data[:position] + rng.randbytes(1) + data[position + 1 :]
            for bad in (data[:position], wrong):
                allowance = rng.randrange(30)
                by_walk, by_function = read_both(which, cls, version, bad, allowance)
                assert repr(by_walk) == repr(by_function), (name, bad)  # NaN is not itself


@pytest.mark.parametrize("which", WALKS)
def test_unknown_tagged_fields_are_passed_on(which: str) -> None:
    """A message keeps the tagged fields that it came with, at the top as well."""
    response = codec.decode(ProduceResponse, 12, written(Response(responses=[]), 12))
    kept = keep_unknown(response, [(99, b"hi")])
    data = walked(which, kept, 12)
    assert data == written(kept, 12)
    assert data.endswith(b"\x63\x02hi")
    (by_walk, _), (by_function, _) = read_both(which, ProduceResponse, 12, data)
    assert by_walk.unknown_tagged_fields == by_function.unknown_tagged_fields == ((99, b"hi"),)
    assert walked(which, by_walk, 12) == data


@pytest.mark.parametrize("which", WALKS)
def test_the_first_fault_is_told(which: str) -> None:
    """A null that may not be, before a field that a version cannot carry, is what is refused."""
    request = MetadataRequest(topics=None, include_topic_authorized_operations=True)
    with pytest.raises((ValueError, TypeError)):
        walked(which, request, 0)
    request = MetadataRequest(topics=[], include_topic_authorized_operations=True)
    with pytest.raises(UnsupportedVersion):
        walked(which, request, 0)


@pytest.mark.parametrize("which", WALKS)
def test_what_a_version_cannot_carry(which: str) -> None:
    """A value that a version would drop is refused, by name."""
    request = Fetch(replica_state=FetchRequest.ReplicaState(replica_id=3))
    with pytest.raises(UnsupportedVersion, match="replica_state at version 14"):
        walked(which, request, 14)


@pytest.mark.parametrize("which", WALKS)
@pytest.mark.parametrize("bad", [{"acks": 1 << 15}, {"acks": "1"}, {"topic_data": None}])
def test_values_outside_their_type(which: str, bad: dict[str, Any]) -> None:
    """Numbers out of range and values of a wrong type are errors, not wrong bytes."""
    with pytest.raises((ValueError, TypeError, OverflowError)):
        walked(which, Request(**bad), 9)


@pytest.mark.parametrize("which", WALKS)
def test_long_text(which: str) -> None:
    """No text is longer than an int16 can say, even where a varint could."""
    with pytest.raises(ValueError, match="text is too long"):
        walked(which, Request(transactional_id="x" * 40_000), 9)


class _NoFile:
    def read(self, _position: int, _size: int) -> bytes:
        raise AssertionError("records are not read to be sent")

    def send_to(self, *_: object) -> int:
        raise AssertionError("not here")

    def pin(self) -> None:
        raise AssertionError("not here")

    def unpin(self) -> None:
        raise AssertionError("not here")


@pytest.mark.parametrize("which", WALKS)
def test_records_stay_as_they_are(which: str) -> None:
    """Buffers and slices of files are passed on, with their sizes before them."""
    partition = Request.TopicProduceData.PartitionProduceData
    part = FileSlice(_NoFile(), 0, 1000)
    data = [partition(records=[b"abc", part]), partition(records=part)]
    request = Request(topic_data=[Request.TopicProduceData(name="t", partition_data=data)])
    walk, made = WALKS[which]
    out: list[Any] = []
    walk.write(made.plan_of(ProduceRequest, 9), request, out)
    expected: list[Any] = []
    codec.write_encoder(ProduceRequest, 9)(request, expected)
    kept = [item for item in out if isinstance(item, FileSlice)]
    assert kept == [part, part]
    assert _joined(out) == _joined(expected)


def _joined(parts: list[Any]) -> bytes:
    return b"".join(b"<slice>" if isinstance(part, FileSlice) else part for part in parts)


@pytest.mark.parametrize("which", WALKS)
def test_tagged_struct(which: str) -> None:
    """A tagged struct is written when it differs from its defaults anywhere below."""
    topic = Response.TopicProduceResponse
    partition = topic.PartitionProduceResponse
    leader = partition.LeaderIdAndEpoch(leader_id=4)
    for one in (partition(), partition(current_leader=leader)):
        response = Response(responses=[topic(name="t", partition_responses=[one])])
        assert walked(which, response, 12) == written(response, 12)
