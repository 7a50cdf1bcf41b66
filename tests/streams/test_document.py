"""The programs of docs/streams.md."""

from __future__ import annotations

from typing import Any

from tests.documents.snippets import snippets


def test_the_program_runs_in_the_driver() -> None:
    """The second snippet feeds the topology of the first."""
    names: dict[str, Any] = {}
    for one in snippets("docs/streams.md"):
        if one.kind == "python" and "Streams(" not in one.text:
            exec(one.text, names)
    assert names["found"] == [("tea", 1), ("tea", 2)]
    assert "KSTREAM-MAPVALUES-" in names["columns"].build().describe()
