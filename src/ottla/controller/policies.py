"""What the owner of a cluster allows: plug-ins that look at new topics and changed settings.

Kafka: org.apache.kafka.server.policy.{CreateTopicPolicy, AlterConfigPolicy} (KIP-108, KIP-133).

A policy is an object with `configure(settings)`, `validate(what)` and `close()`. `validate` raises
PolicyViolation, whose text the client is told; it runs on the controller's loop and must not wait.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.metadata.resources import ConfigResource

log = logging.getLogger("ottla.controller")
T_contra = TypeVar("T_contra", contravariant=True)


class PolicyViolation(KafkaError):
    """Raised by a policy; the text goes to the client."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.POLICY_VIOLATION, message)


class NewTopic(NamedTuple):
    """A topic that is to be created: numbers, or the assignment that was asked for instead."""

    topic: str
    num_partitions: int | None
    replication_factor: int | None
    replicas_assignments: Mapping[int, Sequence[int]] | None
    configs: Mapping[str, str]


class ChangedConfigs(NamedTuple):
    """Settings that a change names and that would be different: None is taken back."""

    resource: ConfigResource
    configs: Mapping[str, str | None]


class Policy(Protocol[T_contra]):
    """What a plug-in offers to the controller."""

    def validate(self, what: T_contra, /) -> None:
        """Return to allow, raise PolicyViolation to refuse."""

    def close(self) -> None:
        """Let go of what it holds: the node stops."""


class Policies(NamedTuple):
    """The policies of a cluster; None allows everything."""

    create_topic: Policy[NewTopic] | None = None
    alter_config: Policy[ChangedConfigs] | None = None

    def check_creation(self, wanted: NewTopic) -> None:
        """Raise KafkaError when the policy does not want the topic."""
        if self.create_topic is not None:
            _ask(self.create_topic, wanted)

    def check_alteration(self, wanted: ChangedConfigs) -> None:
        """Raise KafkaError when the policy does not want the change."""
        if self.alter_config is not None:
            _ask(self.alter_config, wanted)

    def close(self) -> None:
        """Close both; one that fails does not keep the node from stopping."""
        for policy in (self.create_topic, self.alter_config):
            if policy is None:
                continue
            try:
                policy.close()
            except Exception as error:
                log.error("a policy failed to close", exc_info=error)  # noqa: TRY400 - the same


def _ask(policy: Policy[T_contra], wanted: T_contra) -> None:
    """Let a policy decide; one that breaks refuses, and its owner reads why in the log."""
    try:
        policy.validate(wanted)
    except KafkaError:
        raise
    except Exception as error:
        log.exception("a policy broke", exc_info=error, extra={"event": "policy.broken"})
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error


NO_POLICIES = Policies()
