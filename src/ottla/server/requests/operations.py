"""The number that stands for operations which a request did not ask for.

Kafka: org.apache.kafka.common.acl.AclOperation, MetadataResponse.AUTHORIZED_OPERATIONS_OMITTED.
"""

from __future__ import annotations

from typing import Final

NOT_ASKED: Final = -0x8000_0000
