"""One script on Kafka 4.3.0's group coordinator and on ours: the same answers and records.

Then each takes over the other's log, and both describe the same groups.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.coordinator.comparison import Comparison
from tests.transcripts.consumer_group_commands import ConsumerTranscript
from tests.transcripts.share_group_commands import ShareTranscript
from tests.transcripts.streams_group_commands import StreamsTranscript

TRANSCRIPTS = Path(__file__).parents[1] / "transcripts" / "real_groups"
CONSUMER = "g,s,v0,v1,r,m,n,o,w,e,k,p,q"
SHARE = "g,v0,v1,v2,k,w,o"
STREAMS = "g,v1,m,j,n,c,s,p,q,k,w,simple"
COMPARISONS = {
    "consumer": Comparison(
        TRANSCRIPTS / "consumer.txt",
        ConsumerTranscript,
        (
            "list",
            f"describe group={CONSUMER}",
            f"describe-consumer group={CONSUMER}",
            "fetch group=g,m all=1",
        ),
        {"t": 2, "u": 2},
        quiet_s=1.0,
    ),
    "share": Comparison(
        TRANSCRIPTS / "share.txt",
        ShareTranscript,
        (
            "list",
            f"describe group={SHARE}",
            f"describe-consumer group={SHARE}",
            f"describe-share group={SHARE}",
        ),
        {"t": 2, "u": 2},
    ),
    "streams": Comparison(
        TRANSCRIPTS / "streams.txt",
        StreamsTranscript,
        (
            "list",
            f"describe group={STREAMS}",
            f"describe-stream group={STREAMS}",
            "fetch group=g,simple all=1",
        ),
        {"t": 2, "u": 2, "r": 2, "c": 2, "wide": 3},
    ),
}


@pytest.mark.conformance
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", COMPARISONS)
def test_same_answers(tmp_path: Path, kind: str) -> None:
    """Every command leaves the same answers and the same records, generated ids aside."""
    COMPARISONS[kind].check(tmp_path)
