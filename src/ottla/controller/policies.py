"""Policy plug-ins that validate new topics and changed settings.

Kafka: org.apache.kafka.server.policy.{CreateTopicPolicy, AlterConfigPolicy} (KIP-108, KIP-133).

A policy is an object with `configure(settings)`, `validate(what)` and `close()`. `validate` raises
PolicyViolation, whose text is sent to the client; it runs on the event loop and must not block.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.metadata.resources import ConfiguredResource

log = logging.getLogger("ottla.controller")
T_contra = TypeVar("T_contra", contravariant=True)


class PolicyViolation(KafkaError):
    """Raised by a policy; the text is sent to the client."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.POLICY_VIOLATION, message)


class NewTopic(NamedTuple):
    """A topic to create: counts, or instead of them the requested assignment."""

    topic: str
    num_partitions: int | None
    replication_factor: int | None
    replicas_assignments: Mapping[int, Sequence[int]] | None
    configs: Mapping[str, str]


class ChangedConfigs(NamedTuple):
    """Named settings that a change modifies; None removes a setting."""

    resource: ConfiguredResource
    configs: Mapping[str, str | None]


class Policy(Protocol[T_contra]):
    """Interface of a policy plug-in."""

    def validate(self, what: T_contra, /) -> None:
        """Return to allow, raise PolicyViolation to refuse."""

    def close(self) -> None:
        """Release its resources when the node stops."""


class Policies(NamedTuple):
    """The policies of a cluster; None allows everything."""

    create_topic: Policy[NewTopic] | None = None
    alter_config: Policy[ChangedConfigs] | None = None

    def check_creation(self, requested: NewTopic) -> None:
        """Raise KafkaError when the policy refuses the topic."""
        if self.create_topic is not None:
            _validate(self.create_topic, requested)

    def check_alteration(self, requested: ChangedConfigs) -> None:
        """Raise KafkaError when the policy refuses the change."""
        if self.alter_config is not None:
            _validate(self.alter_config, requested)

    def close(self) -> None:
        """Close both; an exception does not prevent the node from stopping."""
        for policy in (self.create_topic, self.alter_config):
            if policy is None:
                continue
            try:
                policy.close()
            except Exception as error:
                log.error("a policy failed to close; correct the plug-in", exc_info=error)  # noqa: TRY400 - the same


def _validate(policy: Policy[T_contra], requested: T_contra) -> None:
    """Call a policy; an unexpected exception refuses the request and is logged."""
    try:
        policy.validate(requested)
    except KafkaError:
        raise
    except Exception as error:
        log.exception(
            "a policy raised an unexpected exception: request refused; correct the plug-in",
            exc_info=error,
            extra={"event": "policy.broken"},
        )
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error


NO_POLICIES = Policies()
