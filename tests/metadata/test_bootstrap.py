"""The first records of a new cluster, and its SCRAM users."""

from __future__ import annotations

import hmac
from base64 import b64encode

import pytest

from ottla.errors import CorruptMessage
from ottla.metadata.bootstrap import activation_records, feature_records, levels_of
from ottla.metadata.features import (
    default_levels,
    metadata_version_name,
    parse_metadata_version,
)
from ottla.metadata.loader import SnapshotPolicy
from ottla.metadata.scram_credential import parse_scram_argument


def test_a_fresh_cluster_has_kafkas_features() -> None:
    """The six levels of a fresh 4.3, metadata.version first."""
    assert list(levels_of(feature_records()).items()) == [
        ("metadata.version", 30),
        ("eligible.leader.replicas.version", 1),
        ("group.version", 1),
        ("share.version", 1),
        ("streams.version", 1),
        ("transaction.version", 2),
    ]


@pytest.mark.parametrize(
    ("release", "level", "features"),
    [
        ("3.9-IV0", 21, {}),
        ("4.0-IV0", 22, {"group.version": 1}),
        ("4.0-IV3", 25, {"group.version": 1, "transaction.version": 2}),
        (
            "4.2-IV0",
            28,
            {
                "eligible.leader.replicas.version": 1,
                "group.version": 1,
                "share.version": 1,
                "transaction.version": 2,
            },
        ),
    ],
)
def test_older_releases_begin_with_less(release: str, level: int, features: dict[str, int]) -> None:
    """Levels by release as in kafka-storage version-mapping."""
    assert parse_metadata_version(release) == level
    assert metadata_version_name(level) == release
    assert default_levels(level) == {"metadata.version": level, **features}


def test_releases_are_understood_in_short() -> None:
    """A release without its IV stands for its last one; nonsense is refused."""
    assert parse_metadata_version("4.3") == parse_metadata_version("4.3.0") == 30
    with pytest.raises(ValueError, match=r"9\.9"):
        parse_metadata_version("9.9")


def test_the_first_records_are_one_transaction() -> None:
    """Bootstrap records stand between markers; ELR moves min.insync.replicas into them."""
    names = [
        type(record.message).__name__
        for record in activation_records(feature_records(), min_insync_replicas=2)
    ]
    assert names[0] == "BeginTransactionRecord"
    assert names[-2:] == ["ConfigRecord", "EndTransactionRecord"]
    without = activation_records(feature_records({"metadata.version": 20}), min_insync_replicas=2)
    assert "ConfigRecord" not in [type(record.message).__name__ for record in without]
    with pytest.raises(CorruptMessage):
        levels_of([])


def test_a_scram_user_is_kept_without_the_password() -> None:
    """The keys give the server signature of RFC 7677's example, and the password is not kept."""
    salt, nonce = "W22ZaJ0SNY7soEsUEjb6gQ==", "rOprNGfwEbeRWgbNEkqO"
    whole = f"{nonce}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    record = parse_scram_argument(
        f'SCRAM-SHA-256=[name=user,password=pencil,salt="{salt}",iterations=4096]', bytes
    )
    assert (record.name, record.mechanism, record.iterations) == ("user", 1, 4096)
    exchange = f"n=user,r={nonce},r={whole},s={salt},i=4096,c=biws,r={whole}"
    signature = hmac.digest(record.server_key, exchange.encode(), "sha256")
    assert b64encode(signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert b"pencil" not in record.stored_key + record.server_key + record.salt


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SCRAM-SHA-256", "Failed to find equals sign in SCRAM argument 'SCRAM-SHA-256'"),
        ("PLAIN=[name=a]", "The add-scram mechanism PLAIN is not supported."),
        ("SCRAM-SHA-256=name=a", r"Expected configuration string to start with \["),
        ("SCRAM-SHA-256=[name=a", r"Expected configuration string to end with \]"),
        ("SCRAM-SHA-256=[password=a]", "You must supply 'name' to add-scram"),
        ("SCRAM-SHA-256=[name]", "No equals sign found in SCRAM component: name"),
        ("SCRAM-SHA-256=[name=a]", "You must supply one of 'password' or 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=a,password=b,iterations=1]", "must be >= 4096"),
        ("SCRAM-SHA-256=[name=a,password=b,iterations=99999]", "must be <= 16384"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=YQ==]", "You must supply 'salt'"),
    ],
)
def test_refuses_scram_arguments(text: str, message: str) -> None:
    """Invalid arguments are reported in Kafka's words."""
    with pytest.raises(ValueError, match=message):
        parse_scram_argument(text, bytes)


def test_snapshots_are_due_by_bytes_and_by_age() -> None:
    """Either limit makes a snapshot due; age counts only when something was written."""
    policy = SnapshotPolicy(max_bytes=100, max_interval_ms=1000, now_ms=0)
    assert policy.due(5000) is None
    policy.committed(10)
    assert policy.due(999) is None
    assert policy.due(1000) is not None
    policy.written(1000)
    assert policy.due(5000) is None
    policy.committed(100)
    assert policy.due(1001) is not None
