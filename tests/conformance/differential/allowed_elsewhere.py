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
        "fetch@controller: valid, metadata",
        r"answer\.(responses|node_endpoints)\[0\].*",
        "Any of the three may be the active controller.",
    ),
    AllowedElsewhere(
        ".*",
        "describe_configs@controller: (broker|another broker)",
        ".*",
        "The answer depends on the id of the controller, which may be any of the three.",
    ),
    AllowedElsewhere(
        ".*",
        "metadata: all|elect_leaders: all",
        r"answer\.(topics|replica_election_results)\..*create-partitions.*",
        "The controller places added partitions at random.",
    ),
    AllowedElsewhere(
        ".*",
        "list_config_resources: .*",
        ".*",
        "Kafka's controller stores settings of brokers that are not there, Ottla's does not.",
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
    AllowedElsewhere(
        ".*",
        "describe_cluster@controller: of controllers",
        r"answer\.brokers.*",
        "Kafka lists the controllers that have registered, also one that does not vote and that a"
        " case has added; Ottla lists the voters.",
    ),
    AllowedElsewhere(
        "follower",
        "produce: (header of 51 bytes|length 48, nothing after)",
        "answer.*",
        "Both errors are right: the batch is damaged, and this broker does not lead.",
    ),
    AllowedElsewhere(
        "follower",
        "fetch: below the start",
        "answer.*",
        "A follower hears of DeleteRecords with its next fetch.",
    ),
    AllowedElsewhere(
        "leader|other",
        "produce: (the same partition twice.*|valid, acks 0)",
        "after",
        "The records are there before the followers have them: the high watermark follows.",
    ),
    AllowedElsewhere(
        "other",
        "produce: header of (26|50) bytes",
        "answer.*",
        "Kafka's handler fails before it sees that this broker does not lead.",
    ),
    AllowedElsewhere(
        "other",
        "produce: .*(zstd|ZSTD).*",
        "answer.*",
        "Both errors are right: the version has no zstd, and this broker does not lead.",
    ),
)


def is_allowed(role: str, one: Difference) -> bool:
    """Whether a difference is in the list."""
    return any(entry.covers(role, one) for entry in ALLOWED)
