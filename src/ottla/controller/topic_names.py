"""Validation of topic names.

Kafka: org.apache.kafka.common.internals.Topic.
"""

from __future__ import annotations

import re
from typing import Final

from ottla.errors import ErrorCode, KafkaError

_MAX_LENGTH: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def check_topic_name(name: str) -> None:
    """Raise KafkaError INVALID_TOPIC_EXCEPTION with Kafka's text for an illegal name."""
    reason = _reason(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def is_topic_name(name: str) -> bool:
    """Whether the topic name is valid."""
    return _reason(name) is None


def _reason(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > _MAX_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {_MAX_LENGTH}"
    if not _LEGAL.fullmatch(name):
        return (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    return None


def unify_collision_characters(name: str) -> str:
    """Return the name as in metrics: topics with equal results collide."""
    return name.replace(".", "_")


def has_collision_characters(name: str) -> bool:
    """Whether the name can collide with another one."""
    return "." in name or "_" in name
