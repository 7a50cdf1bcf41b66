"""Waits until a node has applied every change that it has acknowledged so far.

Kafka: none. Kafka's controller acknowledges a change when its record is committed. Afterwards one
thread applies the records batch by batch: it shows a batch in what the broker describes, then uses
it (quotas, leaders, dynamic settings). Nothing reports the second. But when a later change is
described that was made after another later one had been described, so in a batch of its own, all
batches before it are in use.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ottla.controller.config_operations import ConfigOperation
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.describe_configs import DescribeConfigsRequest
from ottla.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.protocol.schema import Request

    Ask = Callable[[Request, int], Any]

LIMIT_S = 60.0
CHANGES = frozenset({
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.CREATE_ACLS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_ACLS,
    ApiKey.DELETE_TOPICS,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.UPDATE_FEATURES,
})  # fmt: skip
_GROUP = 32
_NAME, _KEY, _VALUE = "applied-sentinel", "consumer.session.timeout.ms", "46001"


def wait_until_applied(ask: Ask) -> None:
    """Set and remove a setting of a group that is not there; wait for each to be described."""
    for operation, value in ((ConfigOperation.SET, _VALUE), (ConfigOperation.DELETE, None)):
        _alter(ask, operation, value)
        deadline = time.monotonic() + LIMIT_S
        while (_described(ask) == _VALUE) != (operation is ConfigOperation.SET):
            assert time.monotonic() < deadline, "the node does not apply a change"
            time.sleep(0.002)


def _alter(ask: Ask, operation: ConfigOperation, value: str | None) -> None:
    struct = IncrementalAlterConfigsRequest.AlterConfigsResource
    change = struct.AlterableConfig(name=_KEY, config_operation=operation, value=value)
    resource = struct(resource_type=_GROUP, resource_name=_NAME, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = ask(request, 1)
    assert answer.responses[0].error_code == 0, answer


def _described(ask: Ask) -> str:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_GROUP, resource_name=_NAME, configuration_keys=[_KEY]
    )
    answer = ask(DescribeConfigsRequest(resources=[resource]), 4)
    value: str = answer.results[0].configs[0].value
    return value
