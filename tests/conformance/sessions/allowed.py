"""The reviewed list: where Ottla may answer otherwise than Kafka 4.3.0 in a session, and why.

Kafka: none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tests.conformance.differential.allowed import ALLOWED as ALLOWED_IN_CASES

if TYPE_CHECKING:
    from tests.conformance.differential.run import Difference


class Allowed(NamedTuple):
    """A difference of values at matching paths, where both values match their expressions."""

    label: str
    path: str
    kafka: str
    ottla: str
    reason: str

    def covers(self, one: Difference) -> bool:
        """Whether a difference is this one."""
        return all(
            re.fullmatch(expression, str(text), re.DOTALL) is not None
            for expression, text in (
                (self.label, one.label),
                (self.path, one.path),
                (self.kafka, one.kafka),
                (self.ottla, one.ottla),
            )
        )


STANDBY = "@controller: session"
"""What follows the name of an API in a step of a standby controller."""
_WRONG_QUOTA = (
    "Quota .*|Invalid configuration key .*|.* cannot be a fractional value."
    "|Proposed value for .* is too large for a LONG."
)
_NO_LIST = "(Can't|Config value) (APPEND|SUBTRACT|append|subtract) .*"
ALLOWED: tuple[Allowed, ...] = (
    Allowed(
        "metadata|describe_cluster",
        r"answer\.controller_id",
        r"\d+",
        r"\d+",
        "Kafka names one of the brokers at random: any of them forwards to the controller.",
    ),
    Allowed(
        "describe_log_dirs",
        r".*\.partition_size",
        ".*",
        ".*",
        "Recompressed batches have other sizes.",
    ),
    Allowed(
        "incremental_alter_configs",
        r".*\.error_message",
        f"{_NO_LIST}|Unknown config name.*",
        f"{_NO_LIST}|Unknown config name.*",
        "Of several settings that are no lists Kafka names the first one of a hash map.",
    ),
    Allowed(
        "(incremental_)?alter_configs|create_topics",
        r".*\.error_message",
        "Invalid value .*|Configuration .*|Unknown .* config.*",
        "Invalid value .*|Configuration .*|Unknown .* config.*",
        "Of several wrong settings Kafka names the first one of its own order.",
    ),
    Allowed(
        "alter_client_quotas",
        r".*\.error_message",
        _WRONG_QUOTA,
        _WRONG_QUOTA,
        "Of several wrong limits Kafka names the first one of a hash map.",
    ),
    Allowed(
        "list_offsets",
        r"answer\.topics\..*\.partitions\..*\.(timestamp|offset|leader_epoch)",
        "-1",
        r"\d+",
        "Kafka's search by time ends in a segment that DeleteRecords has left without records, as"
        " long as the retention task has not removed it; Ottla goes on to the next one.",
    ),
    Allowed(
        f"(incremental_)?alter_configs{STANDBY}",
        r"answer\.responses\..*\.error_(code|message)",
        "35|42|Unknown resource type.*|Duplicate resource.*",
        "41|The active controller .*|No controller .*",
        "A standby controller of Kafka refuses unknown kinds and repeated resources by itself where"
        " nothing else is requested; Ottla's names the active one, as for topics.",
    ),
    *(
        Allowed(
            "sync_group",
            path,
            kafka,
            ottla,
            "A member that syncs again, or is removed, while its sync waits gets no answer to it in"
            " Kafka; Ottla answers REBALANCE_IN_PROGRESS or UNKNOWN_MEMBER_ID.",
        )
        for path, kafka, ottla in (
            ("answer", "no answer", "<absent>"),
            (r"answer\.error_code", "<absent>", "25|27"),
            (
                r"answer\.(throttle_time_ms|protocol_type|protocol_name|assignment)",
                "<absent>",
                ".*",
            ),
        )
    ),
)
# What Kafka leaves to chance: a session ends there, but only if no try gets past it.
CHANCE: tuple[Allowed, ...] = (
    Allowed(
        "join_group",
        r"answer\.leader",
        ".+",
        ".+",
        "The next leader of a group is the first of a hash map by member ids, of which a part is"
        " drawn.",
    ),
    Allowed(
        "fetch",
        r"answer\.responses\[\d+\]\.partitions\[\d+\]\.error_code",
        "0|3",
        "0|3",
        "The partitions of a deleted topic are stopped in the order of a hash map; the first one"
        " ends a waiting fetch, which reads the others.",
    ),
)
# Differences of the single requests that hold here, too: their labels have the case's name.
_FROM_CASES = tuple(
    one
    for one in ALLOWED_IN_CASES
    if one.label in ("api_versions.*", "describe_configs.*", "describe_quorum.*")
)

# Lists that Kafka fills from hash maps: their order has no meaning. Label → name of the list.
UNORDERED: tuple[tuple[str, str], ...] = (
    ("list_groups", "groups"),
    ("metadata", "topics"),
    ("metadata|describe_cluster", "brokers"),
    ("describe_quorum", "nodes"),
    ("describe_quorum", "current_voters"),
    ("describe_quorum", "observers"),
    ("describe_log_dirs", "topics"),
    ("describe_log_dirs", "partitions"),
    (".*configs", "configs"),
    (".*configs", "responses"),
    ("describe_client_quotas", "entries"),
    ("describe_client_quotas", "entity"),
    ("describe_client_quotas", "values"),
    ("alter_client_quotas", "entries"),
    ("alter_client_quotas", "entity"),
    ("api_versions", "api_keys"),
    ("api_versions", "supported_features"),
    ("api_versions", "finalized_features"),
    ("elect_leaders", "replica_election_results"),
    ("elect_leaders", "partition_result"),
    ("list_config_resources", "config_resources"),
    ("describe_user_scram_credentials", "results"),
    ("describe_groups", "groups"),
    ("describe_groups", "members"),
    ("join_group", "members"),
    ("add_partitions_to_txn", "results_by_topic_v3_and_below"),
    ("add_partitions_to_txn", "results_by_transaction"),
    ("add_partitions_to_txn", "topic_results"),
    ("add_partitions_to_txn", "results_by_partition"),
    ("describe_transactions", "topics"),
    ("txn_offset_commit", "topics"),
    ("delete_groups", "results"),
    ("delete_topics", "responses"),
    ("create_topics", "topics"),
    ("create_topics", "configs"),
    ("create_partitions", "results"),
    ("produce", "partition_responses"),
    ("produce", "responses"),
    ("describe_producers", "active_producers"),
    ("list_offsets", "topics"),
    ("list_offsets", "partitions"),
    ("offset_commit", "topics"),
    ("offset_fetch", "topics"),
    ("offset_fetch", "partitions"),
    ("offset_delete", "topics"),
    ("delete_records", "topics"),
    ("delete_records", "partitions"),
)


def is_chance(one: Difference) -> bool:
    """Whether Kafka may answer otherwise the next time."""
    return any(entry.covers(one) for entry in CHANCE)


def is_allowed(one: Difference) -> bool:
    """Whether a difference is in the list."""
    return any(entry.covers(one) for entry in ALLOWED) or any(
        entry.covers(one) for entry in _FROM_CASES
    )
