"""Which operations a caller may do, as bit sets: with no authorizer, all that there are.

Kafka: kafka.server.AuthHelper.authorizedOperations, org.apache.kafka.common.acl.AclOperation.
"""

from __future__ import annotations

from typing import Final

NOT_ASKED: Final = -0x8000_0000
_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = (1 << code for code in range(3, 9))
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = (
    1 << code for code in range(9, 13)
)
_CONFIGS = _DESCRIBE_CONFIGS | _ALTER_CONFIGS

TOPIC: Final = _READ | _WRITE | _CREATE | _DELETE | _ALTER | _DESCRIBE | _CONFIGS
CLUSTER: Final = _CREATE | _ALTER | _DESCRIBE | _CLUSTER_ACTION | _CONFIGS | _IDEMPOTENT_WRITE
GROUP: Final = _READ | _DELETE | _DESCRIBE | _CONFIGS
