"""The reviewed list of clusters: where nodes that do not lead may answer otherwise than Kafka's.

Kafka: none. It goes with that of single nodes (`allowed.py`); entries name the role of the node.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.conformance.differential.run import Difference


class AllowedElsewhere(NamedTuple):
    """Values at paths that match, in cases whose labels match, need not be equal."""

    role: str
    label: str
    path: str
    reason: str

    def covers(self, role: str, one: Difference) -> bool:
        """Whether a difference is this one."""
        parts = ((self.role, role), (self.label, one.label), (self.path, one.path))
        return all(re.fullmatch(expression, text) for expression, text in parts)


ALLOWED: tuple[AllowedElsewhere, ...] = (
    AllowedElsewhere(
        ".*",
        "metadata: all|elect_leaders: all",
        r"answer\.(topics|replica_election_results)\..*create-partitions.*",
        "The controller places added partitions at random.",
    ),
    AllowedElsewhere(
        "follower",
        "(create_topics|create_partitions|delete_topics|elect_leaders|list_partition_reassignments)"
        "@controller: .*",
        "answer.*",
        "A standby controller of Kafka answers what it can say by itself: names that are given"
        " twice, topics that it does not know, moves that it has heard of. Ottla's names the active"
        " one, whose answer is not out of date.",
    ),
    AllowedElsewhere(
        "follower",
        "envelope@controller: valid",
        r"answer\.(response_data|error_code)",
        "The request inside changes nothing; Kafka's standby answers it, Ottla's sends the broker"
        " to the active controller.",
    ),
    AllowedElsewhere(
        "follower",
        "controller_registration@controller: .*",
        r"answer\.error_message",
        "Kafka has the text of the code there; Ottla names the active controller.",
    ),
)


used: set[AllowedElsewhere] = set()


def is_allowed(role: str, one: Difference) -> bool:
    """Whether a difference is in the list."""
    entry = next((entry for entry in ALLOWED if entry.covers(role, one)), None)
    if entry is not None:
        used.add(entry)
    return entry is not None
