"""A log pipeline: lines of a file go to a topic, and a consumer counts errors by service.

ottla server-start &
python examples/log_pipeline.py [localhost:9092 [FILE]]
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from ottla import Admin, Consumer, Producer

if TYPE_CHECKING:
    from collections.abc import Iterable

LOGS = "logs"
LINE = re.compile(r"(?P<time>\S+) (?P<level>[A-Z]+) (?P<service>[\w.-]+): (?P<text>.*)")
SAMPLE = """\
2026-01-01T10:00:00Z INFO web: started
2026-01-01T10:00:01Z ERROR payment: card refused
2026-01-01T10:00:02Z ERROR payment: no answer from the bank
Traceback (most recent call last):
2026-01-01T10:00:03Z ERROR web: broken pipe
""".splitlines()


def ship(bootstrap: str, lines: Iterable[str]) -> int:
    """Send each line as JSON, keyed by service, so that a service's lines stay in order."""
    sent = 0
    with Producer(
        bootstrap_servers=bootstrap, value_serializer="json", linger_ms=20, compression_type="zstd"
    ) as producer:
        for line in lines:
            found = LINE.fullmatch(line)
            fields = found.groupdict() if found else {"level": "UNKNOWN", "text": line}
            producer.send(LOGS, fields, key=fields.get("service"))
            sent += 1
    return sent  # leaving `with` has waited for every line, and would have raised


def count_errors(bootstrap: str, lines: int) -> Counter[str]:
    """Read that many lines and count errors by service."""
    errors: Counter[str] = Counter()
    with Consumer(
        LOGS, bootstrap_servers=bootstrap, group_id="error-count", auto_offset_reset="earliest"
    ) as consumer:
        while lines > 0:
            for record in consumer.poll(timeout=1.0):
                fields = json.loads(record.value)
                errors[fields.get("service", "")] += fields["level"] == "ERROR"
                lines -= 1
        consumer.commit()
    return +errors


def main(bootstrap: str, lines: Iterable[str] = SAMPLE) -> Counter[str]:
    """Run both ends."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(LOGS, partitions=3, if_not_exists=True)
    return count_errors(bootstrap, ship(bootstrap, lines))


if __name__ == "__main__":
    log_file = Path(sys.argv[2]).read_text("utf-8").splitlines() if len(sys.argv) > 2 else SAMPLE
    print(dict(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092", log_file)))
