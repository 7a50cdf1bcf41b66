"""Tables of the APIs in the documents, written by this test from the declarations at the handlers.

docs/coverage.md: which API has a schema, a handler and tests; docs/security.md: which right each
needs, who decides. `OTTLA_REWRITE=1 scripts/test` rewrites them; without it they must be current.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.protocol.api_keys import ApiKey, advertised_versions, request_class, served_versions
from ottla.server.requests.api import served_apis
from ottla.server.requests.rights import text_of
from tests.sampling import last_full_run

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "coverage.md"
SECURITY = ROOT / "docs" / "security.md"
RIGHTS_HEAD = """| API | right | decided by | request quota |
|---|---|---|---|
"""
HEAD = """# Coverage of Kafka's protocol

Written by `tests/test_coverage_map.py`; do not edit by hand. For each API of Apache Kafka 4.3.0:
the versions of the schema, the listeners, the handler, the versions it answers (when not all), what
a version brought for the handler, and test files that use its request (as of the last writing).
"refused" marks a handler that answers every request with an error: those of SASL, which
`server/requests/login.py` serves on listeners with SASL before other requests are read. A dash
means that there is no handler: the API is not advertised.
"""

FULL_RUN = (
    "All tests that compare with Apache Kafka 4.3.0 (`scripts/conformance --all`) were last run on"
)


class Handler(NamedTuple):
    """The handler of an API: its module, the versions it answers, whether it always refuses."""

    place: str
    notes: str
    lowest: int
    highest: int
    refuses: bool


def handlers() -> dict[int, Handler]:
    """Return the handler of each served API by key."""
    found: dict[int, Handler] = {}
    for listener in ("broker", "controller"):
        for key, api in served_apis(listener).items():
            module = api.handler.__module__.removeprefix("ottla.").replace(".", "/")
            notes = "; ".join(f"v{version} {text}" for version, text in api.notes.items())
            refuses = always_refuses(api.handler)
            handler = Handler(f"{module}.py", notes, api.lowest, api.highest, refuses)
            found.setdefault(key, handler)  # Fetch has one on each listener
    return found


def always_refuses(handler: Callable[..., object]) -> bool:
    """Whether every return of a handler is a response with an error code other than NONE."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(handler)))
    returned = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
    return bool(returned) and all(has_error_code(value) for value in returned)


def has_error_code(value: ast.expr | None) -> bool:
    """Whether an expression builds a response with `error_code=int(…)` of a fixed error."""
    if not isinstance(value, ast.Call):
        return False
    codes = [ast.unparse(one.value) for one in value.keywords if one.arg == "error_code"]
    fixed = r"int\((ErrorCode\.(?!NONE\b)\w+|error\.code)\)"
    return any(re.fullmatch(fixed, code) for code in codes)


def files_naming(name: str, requests: dict[str, set[str]]) -> str:
    """List the test files that name the API's request class."""
    found = [place for place, names in requests.items() if f"{name}Request" in names]
    return ", ".join(f"`{place}`" for place in found[:3]) + (" …" if len(found) > 3 else "")


def table() -> str:
    """Render the document."""
    requests = {
        path.relative_to(ROOT).as_posix(): set(
            re.findall(r"\b\w+Request\b", path.read_text("utf-8"))
        )
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
    }
    answered = handlers()
    rows = []
    for key in ApiKey:
        name = key.api_name
        schema, advertised = served_versions(key), advertised_versions(key)
        versions = f"{schema.lowest}-{schema.highest}"
        if advertised != schema:
            versions += f" (advertised {advertised.lowest}-{advertised.highest})"
        listeners = ", ".join(request_class(key).api_listeners)
        handler = answered.get(key)
        answers = answer(handler, (schema.lowest, schema.highest))
        notes = "" if handler is None else handler.notes
        rows.append(
            f"| {key.value} | {name} | {versions} | {listeners} | {answers} | {notes} "
            f"| {files_naming(name, requests) or '—'} |"
        )
    refused = sum(one.refuses for one in answered.values())
    served, missing = len(answered) - refused, len(rows) - len(answered)
    summary = f"{served} are served, {refused} are refused, {missing} have no handler"
    run = last_full_run()
    lines = [
        HEAD,
        f"{len(rows)} APIs have a schema: {summary}.\n",
        f"{FULL_RUN} {run['date']}, commit {run['commit'][:8]}: {run['counts']}.\n",
        "| key | API | versions | listeners | handler | by version | tests |",
        "|---|---|---|---|---|---|---|",
        *rows,
    ]
    return "\n".join(lines) + "\n"


def answer(handler: Handler | None, schema: tuple[int, int]) -> str:
    """Render the cell of a handler."""
    if handler is None:
        return "—"
    whole = (handler.lowest, handler.highest) == schema
    versions = "" if whole else f" {handler.lowest}-{handler.highest}"
    return f"`{handler.place}`{versions}" + (", refused" if handler.refuses else "")


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


def test_apis_that_always_refuse_are_found() -> None:
    """The analysis finds the handlers without a successful answer, and no others."""
    refused = {ApiKey(key).api_name for key, one in handlers().items() if one.refuses}
    assert refused == {"SaslHandshake", "SaslAuthenticate"}


def test_every_key_has_both_classes() -> None:
    """All 89 live keys have a request and a response of their own."""
    assert len(ApiKey) == 89
    assert len({request_class(key) for key in ApiKey}) == 89


def rights() -> str:
    """Render the table of rights; one row where both listeners declare the same."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for listener in ("broker", "controller"):
        for key, api in served_apis(listener).items():
            quota = "" if api.is_throttled else "exempt"
            if api.refused_over_quota_from:
                quota = f"mutations are refused from v{api.refused_over_quota_from}"
            decides = "active controller" if api.is_forwarded else listener
            deciding = rows.setdefault((ApiKey(key).api_name, text_of(api.right), quota), [])
            deciding.extend({decides} - set(deciding))
    lines = [
        f"| {name} | {right} | {', '.join(deciding)} | {quota} |"
        for (name, right, quota), deciding in sorted(rows.items())
    ]
    return RIGHTS_HEAD + "\n".join(lines) + "\n"


def test_the_table_of_rights_is_true() -> None:
    """docs/security.md names the right of each API as its handler declares it."""
    text = SECURITY.read_text(encoding="utf-8")
    before, head, rest = text.partition(RIGHTS_HEAD)
    table_lines = len(rest.split("\n\n")[0])
    written = before + rights() + rest[table_lines:].removeprefix("\n")
    if os.environ.get("OTTLA_REWRITE"):
        SECURITY.write_text(written, encoding="utf-8")
        text = written
    assert head
    assert text == written, "run OTTLA_REWRITE=1 scripts/test"


def test_notes_are_about_versions_that_are_served() -> None:
    """A note of a version that no request can have is none."""
    apis = [*served_apis("broker", unstable=True).values(), *served_apis("controller").values()]
    served = {(api.key.name, version) for api in apis for version in api.notes}
    odd = [
        (api.key.name, version)
        for api in apis
        for version in api.notes
        if not api.lowest <= version <= api.highest
    ]
    assert served
    assert not odd
