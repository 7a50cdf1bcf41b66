"""The reviewed list: where Ottla may answer otherwise than Kafka 4.3.0, and why.

Kafka: none. A test fails when an entry here is no longer needed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tests.conformance.differential.case import Case
    from tests.conformance.differential.run import Difference


class Allowed(NamedTuple):
    """Values at paths that match, in cases whose labels match, need not be equal."""

    label: str
    path: str
    reason: str

    def covers(self, one: Difference) -> bool:
        """Whether a difference is this one."""
        return bool(re.fullmatch(self.label, one.label) and re.fullmatch(self.path, one.path))


ROLE = "((leader|follower|other)-)?"
"""What the groups of a case begin with on clusters of three nodes."""

ALLOWED: tuple[Allowed, ...] = (
    Allowed(
        "produce: null records",
        "answer.*",
        "Kafka's handler fails on null and leaves the client without an answer until it gives up;"
        " Ottla answers INVALID_RECORD.",
    ),
    Allowed(
        "produce: (codec 5|says gzip, is plain)",
        r"answer\.responses\[0\]\.partition_responses\[0\]\.(error_code|log_start_offset)",
        "Records that do not decompress are the client's fault: INVALID_RECORD, where Kafka logs an"
        " error of the server and answers UNKNOWN_SERVER_ERROR.",
    ),
    Allowed(
        "produce: (offsets .*|stream cut by .*|bytes after the stream, (SNAPPY|ZSTD))",
        r"answer\.responses\[0\]\.partition_responses\[0\]\."
        r"(error_code|error_message|log_start_offset)",
        "Kafka fails with UNKNOWN_SERVER_ERROR on streams that are broken, and on compressed"
        " batches whose offset deltas are not 0, 1, 2…, which it means to number again; Ottla"
        " answers INVALID_RECORD.",
    ),
    Allowed(
        "produce: header of (26|50) bytes",
        r"answer\.responses\[0\]\.partition_responses\[0\]\.error_code",
        "A batch that ends before its producer id makes Kafka's handler fail: all partitions of the"
        " request are UNKNOWN_SERVER_ERROR. In Ottla that batch is CORRUPT_MESSAGE, as a"
        " longer one that is not complete.",
    ),
    Allowed(
        "produce: offsets .*, NONE",
        "after",
        "Ottla numbers uncompressed records again; Kafka stores offsets beyond those of the batch.",
    ),
    Allowed(
        "produce: record shorter than its fields, .*",
        ".*",
        "Kafka ignores the length of a compressed record; Ottla requires it to be right.",
    ),
    Allowed(
        "produce: time wraps to one that is taken, .*",
        "answer.*",
        "A time beyond 64 bits is INVALID_TIMESTAMP; Kafka lets it wrap around and takes what"
        " comes out, however early it is.",
    ),
    Allowed(
        "(vote|begin_quorum_epoch|end_quorum_epoch|fetch|fetch_snapshot|update_raft_voter)"
        "@controller.*",
        r".*\.(leader_epoch|high_watermark|records|unaligned_records|size|log_start_offset"
        r"|snapshot_id\.(end_offset|epoch)|diverging_epoch\.(end_offset|epoch))",
        "The two metadata logs hold different records in different epochs.",
    ),
    Allowed(
        "fetch_snapshot@controller: (another topic|another partition|past epoch|beyond its end"
        "|not there)",
        "answer.*",
        "Kafka's response to a snapshot that cannot be read has null for the records, which it"
        " cannot write: UNKNOWN_SERVER_ERROR. Ottla's has the code that is meant.",
    ),
    Allowed(
        "describe_user_scram_credentials@controller.*",
        "answer.*",
        "Kafka's controller advertises this API but never answers it; Ottla's answers as its broker"
        " does.",
    ),
    Allowed(
        "fetch: isolation 7",
        "answer.*",
        "There are isolation levels 0 and 1. For others Kafka's handler fails (an error of the"
        " server); Ottla takes them for read_committed, which shows nothing that is not committed.",
    ),
    Allowed(
        "list_groups.*",
        rf"answer\.groups\.{ROLE}offset-commit-long-metadata-.*",
        "In Kafka a commit that is refused leaves an empty group in memory until the next start.",
    ),
    Allowed(
        "describe_quorum.*",
        r".*\.(high_watermark|log_end_offset|leader_epoch)",
        "The two metadata logs hold different records: Kafka writes empty ones when"
        " nothing happens, and resigns on requests that its controller did not expect.",
    ),
    Allowed(
        "describe_configs.*",
        r".*\.documentation",
        "Settings are explained in our own words, nothing is copied from Kafka.",
    ),
    Allowed(
        "incremental_alter_configs: cleaner threads 0 of a broker",
        r"answer\.responses\[0\]\.error_message",
        "Kafka divides by the number of threads and reports '/ by zero'; Ottla names the setting.",
    ),
    Allowed(
        "alter_configs: twice",
        "answer.*",
        "Kafka's handler fails on a resource named twice and never answers; Ottla answers as the"
        " incremental API does.",
    ),
    Allowed(
        "(incremental_)?alter_configs@controller: (null|read-only of a broker"
        "|wrong value of a broker|wrong value of a broker with a name|wrong value of another broker"
        "|cleaner threads 0 of a broker|another broker|broker with a name|unknown kind"
        "|resource twice"
        "|unknown operation|the same key twice)",
        "answer.*",
        "Kafka's controller stores settings unchecked which its brokers refuse, and takes two kinds"
        " of bad request for its own failure and resigns (NOT_CONTROLLER). Ottla checks alike on"
        " both listeners, and answers with the broker's code and words.",
    ),
)

# Lists that Kafka fills from hash maps: their order has no meaning. Label → name of the list.
UNORDERED: tuple[tuple[str, str], ...] = (
    ("list_groups.*", "groups"),
    ("metadata.*", "topics"),
    ("describe_log_dirs.*", "topics"),
    ("describe_log_dirs.*", "partitions"),
    (".*configs.*", "configs"),
    ("describe_client_quotas.*", "entries"),
    ("api_versions.*", "api_keys"),
    ("add_partitions_to_txn.*", "results_by_topic_v3_and_below"),
    ("add_partitions_to_txn.*", "topic_results"),
    ("add_partitions_to_txn.*", "results_by_partition"),
    ("write_txn_markers.*", "topics"),
    ("write_txn_markers.*", "partitions"),
    ("elect_leaders.*", "replica_election_results"),
    ("list_config_resources.*", "config_resources"),
    ("api_versions.*", "supported_features"),
    ("api_versions.*", "finalized_features"),
    ("describe_client_quotas.*", "entity"),
    ("describe_groups: several", "groups"),  # answers of the shards come as they are ready
    ("delete_groups: several", "results"),
    ("produce: several.*", "partition_responses"),
    ("produce: several.*", "responses"),
    ("delete_topics.*", "responses"),  # shuffled, so that positions tell nothing
)

_NAMES = (
    "index",
    "name",
    "api_key",
    "topic",
    "topic_id",
    "group_id",
    "partition_index",
    "entity",
    "resource_type",
    "resource_name",
)

used: set[Allowed] = set()


def is_allowed(one: Difference) -> bool:
    """Whether a difference is in the list."""
    for entry in ALLOWED:
        if entry.covers(one):
            used.add(entry)
            return True
    return False


def sort(case: Case, answer: Any) -> None:
    """Bring the unordered lists of an answer into one order, in place."""
    names = {name for label, name in UNORDERED if re.fullmatch(label, case.label)}
    if names:
        sort_lists(answer, names)


def _by_name(listed: list[Any]) -> Any:
    """Return a list as a dict by what its elements are called, so that differences are short.

    The order of the dict must not be that of the list: a list around it may be sorted by its text.
    """
    named = {
        " ".join(str(one[key]) for key in _NAMES if key in one): one
        for one in listed
        if isinstance(one, dict)
    }
    if len(named) < len(listed):
        return sorted(listed, key=repr)
    return {name: named[name] for name in sorted(named)}


def sort_lists(value: Any, names: set[str]) -> None:
    """Bring the lists of these names into one order, in place."""
    if isinstance(value, dict):
        for name, inner in list(value.items()):
            sort_lists(inner, names)
            if name in names and isinstance(inner, list):
                value[name] = _by_name(inner)
    elif isinstance(value, list):
        for inner in value:
            sort_lists(inner, names)
