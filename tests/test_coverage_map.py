"""docs/coverage.md: which API has a schema, a handler and tests, written by this test.

`OTTLA_REWRITE=1 scripts/test` writes the file anew; without it the file must be true already.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from ottla.protocol.api_keys import ApiKey, advertised_versions, request_class, served_versions

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "coverage.md"

HEAD = """# Coverage of Kafka's protocol

Written by `tests/test_coverage_map.py`; do not edit by hand. For each API of Apache Kafka 4.3.0:
the versions of the schema, the listeners, the handler that answers it, the versions it answers
(when not all), and test files that use its request (as of the last writing). A dash means that
the part does not exist yet: brokers do not advertise the API then.
"""


def handlers() -> dict[int, tuple[str, int, int]]:
    """Return module and version range of each served API; empty before there is a server."""
    try:
        from ottla.server.requests.dispatch import served_apis
    except ImportError:
        return {}
    found = {}
    for listener in ("broker", "controller"):
        for key, api in served_apis(listener).items():
            module = api.handler.__module__.removeprefix("ottla.").replace(".", "/")
            found[key] = (f"{module}.py", api.lowest, api.highest)
    return found


def files_naming(name: str, texts: dict[str, str]) -> str:
    """List the test files that name the API's request class."""
    pattern = re.compile(rf"\b{name}Request\b")
    found = [place for place, text in texts.items() if pattern.search(text)]
    return ", ".join(f"`{place}`" for place in found[:3]) + (" …" if len(found) > 3 else "")


def table() -> str:
    """Render the document."""
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
    }
    answered = handlers()
    rows = []
    for key in ApiKey:
        name = key.api_name
        schema, advertised = served_versions(key), advertised_versions(key)
        place, lowest, highest = answered.get(key, ("", -1, -1))
        versions = f"{schema.lowest}-{schema.highest}"
        if advertised != schema:
            versions += f" (advertised {advertised.lowest}-{advertised.highest})"
        whole = (lowest, highest) == (schema.lowest, schema.highest)
        answers = "—" if not place else f"`{place}`" + ("" if whole else f" {lowest}-{highest}")
        listeners = ", ".join(request_class(key).api_listeners)
        rows.append(
            f"| {key.value} | {name} | {versions} | {listeners} | {answers} "
            f"| {files_naming(name, texts) or '—'} |"
        )
    count = sum(key in answered for key in ApiKey)
    lines = [
        HEAD,
        f"{len(rows)} APIs have a schema; {count} have a handler.\n",
        "| key | API | versions | listeners | handler | tests |",
        "|---|---|---|---|---|---|",
        *rows,
    ]
    return "\n".join(lines) + "\n"


def test_the_coverage_table_is_true() -> None:
    """docs/coverage.md says what the code has, API by API."""
    if os.environ.get("OTTLA_REWRITE"):
        DOCUMENT.write_text(table(), encoding="utf-8")
    written, true = (without_tests(text) for text in (DOCUMENT.read_text("utf-8"), table()))
    assert written == true, "run OTTLA_REWRITE=1 scripts/test"


def without_tests(text: str) -> list[str]:
    """Leave the tests out of the rows: a new test elsewhere must not make the table false."""
    return [
        line.rpartition(" | ")[0] if line.startswith("|") else line for line in text.split("\n")
    ]


def test_the_tests_named_in_the_table_exist() -> None:
    """A test file that was renamed is renamed in the table too."""
    named = set(re.findall(r"`(tests/[\w/.]+)`", DOCUMENT.read_text(encoding="utf-8")))
    assert not sorted(place for place in named if not (ROOT / place).exists())


def test_every_key_has_both_classes() -> None:
    """All 89 live keys have a request and a response of their own."""
    assert len(ApiKey) == 89
    assert len({request_class(key) for key in ApiKey}) == 89
