"""The Kafka broker of the tests runs and advertises the APIs that Ottla supports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.errors import ErrorCode
from ottla.protocol import codec, frames
from ottla.protocol.api_keys import ApiKey, advertised_versions, request_class
from ottla.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.frames import ResponseHeader
from tests.conformance.kafka import exchange, join

if TYPE_CHECKING:
    from tests.conformance.kafka import RealKafka

pytestmark = pytest.mark.conformance

# Hidden until a receiver of telemetry is configured.
HIDDEN = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}


def api_versions(port: int, version: int, *, claimed: int | None = None) -> ApiVersionsResponse:
    """Send ApiVersions to a node; `claimed` is the version in the header."""
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version="1")
    frame = bytearray(join(frames.encode_request(request, version, 7, "conformance")))
    if claimed is not None:
        frame[6:8] = claimed.to_bytes(2, "big")
    answer = memoryview(exchange(port, bytes(frame)))
    header, position = codec.decode_at(ResponseHeader, 0, answer)
    assert header.correlation_id == 7
    answered = version if claimed is None else 0
    response, end = codec.decode_at(ApiVersionsResponse, answered, answer, position)
    assert end == len(answer)
    return response


def test_tools_reach_the_running_node(real_kafka: RealKafka) -> None:
    """A topic made with Kafka's own tool is in the list that the tool prints."""
    command = "org.apache.kafka.tools.TopicCommand"
    real_kafka.tool(command, "--create", "--topic", "probe", "--partitions", "2")
    assert "probe" in real_kafka.tool(command, "--list").split()


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("listener", ["broker", "controller"])
def test_the_advertised_versions_are_ours(
    real_kafka: RealKafka, listener: str, version: int
) -> None:
    """Both listeners name exactly the keys and versions of our registry."""
    port = real_kafka.port if listener == "broker" else real_kafka.controller_port
    response = api_versions(port, version)
    assert response.error_code == ErrorCode.NONE
    assert {one.api_key: (one.min_version, one.max_version) for one in response.api_keys} == {
        int(key): tuple(advertised_versions(key))
        for key in ApiKey
        if listener in request_class(key).api_listeners and key not in HIDDEN
    }


def test_a_version_from_the_future_is_answered_in_v0(real_kafka: RealKafka) -> None:
    """The header of a version to come is flexible, the answer is v0 with an error (KIP-511)."""
    response = api_versions(real_kafka.port, 4, claimed=99)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [one.api_key for one in response.api_keys] == [ApiKey.API_VERSIONS]
