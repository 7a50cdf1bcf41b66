"""The list of --initial-controllers."""

from __future__ import annotations

import pytest

from ottla.cli.commands.storage import parse_dynamic_voters
from ottla.raft.voter_set import Voter, VoterAddress
from ottla.types import Uuid

DISK = Uuid(b"d" * 16)


def test_voters_are_sorted_and_their_hosts_named_as_java_does() -> None:
    """Blank entries are left out; an IPv6 address is written in full."""
    found = parse_dynamic_voters(f"3@[::1]:2:{DISK}, 1@h:1:{DISK},,2@:3:{DISK}", "C")
    assert found == tuple(
        Voter(node_id, DISK, (VoterAddress("C", host, port),))
        for node_id, host, port in ((1, "h", 1), (2, "localhost", 3), (3, "0:0:0:0:0:0:0:1", 2))
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "No voters given"),
        ("1", "No @ found in dynamic voter string"),
        ("@h:1:x", "Invalid @ at beginning"),
        ("x@h:1:x", "Failed to parse node id"),
        ("-1@h:1:x", "Invalid negative node id -1"),
        ("1@", "No hostname found after node id"),
        ("1@[h:1:x", "no right bracket was found"),
        ("1@[h]1:x", "Port section must start with a colon"),
        ("1@h", "No colon following hostname"),
        ("1@h:1", "No colon following port"),
        ("1@h:y:x", "Failed to parse port"),
        ("1@h:65536:x", "Invalid port 65536"),
        ("1@h:1:x", "Failed to parse directory ID"),
        (f"1@h:1:{DISK},1@i:1:{DISK}", "Node id 1 was specified more than once"),
    ],
)
def test_wrong_voters_are_refused(text: str, why: str) -> None:
    """With Kafka's texts."""
    with pytest.raises(ValueError, match=why):
        parse_dynamic_voters(text, "C")
