"""The checks of a source's exactly-once settings, with Kafka's texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from ottla.connect.connector import ExactlyOnceSupport, SourceConnector
from ottla.connect.plugins import Plugin, Plugins
from ottla.connect.runtime.validation import GroupRules, validate

if TYPE_CHECKING:
    from collections.abc import Mapping

ENABLED, DISABLED = GroupRules("workers", True), GroupRules("workers", False)
UNSUPPORTED = (
    "The connector does not support exactly-once semantics with the provided configuration."
)
UNEXPECTED = "An unexpected error occurred during validation"
NO_WORKER = "This worker does not have exactly-once source support enabled."


class Checked(SourceConnector):
    """Answers as its setting `says`."""

    task_class: ClassVar[Any] = None

    def start(self, config: Mapping[str, str]) -> None:
        """Need nothing."""

    def task_configs(self, tasks_max: int) -> list[Mapping[str, str]]:
        """Have no tasks."""
        del tasks_max
        return []

    def exactly_once_support(self, config: Mapping[str, str]) -> ExactlyOnceSupport | None:
        """Answer, or fail."""
        match config.get("says"):
            case "fails":
                raise ValueError(" no database ")
            case "fails silently":
                raise ValueError
            case None:
                return None
            case text:
                return ExactlyOnceSupport(text)

    def can_define_transaction_boundaries(self, config: Mapping[str, str]) -> bool:
        """Answer alike."""
        return self.exactly_once_support(config) is ExactlyOnceSupport.SUPPORTED


def errors(config: Mapping[str, str], group: GroupRules | None) -> dict[str, list[str]]:
    """Return the errors of a configuration by setting."""
    plugin = Plugin("Checked", "source", f"{__name__}:Checked")
    base = {"name": "c", "connector.class": "Checked"}
    infos = validate(Plugins(plugin), {**base, **config}, group=group)["configs"]
    own = ("exactly.once.support", "transaction.boundary", "transaction.boundary.interval.ms")
    by_name = {it["value"]["name"]: it["value"]["errors"] for it in infos}
    return {name: by_name[name] for name in own if by_name[name]}


@pytest.mark.parametrize(
    ("says", "group", "expected"),
    [
        ("supported", ENABLED, []),
        ("supported", DISABLED, [NO_WORKER]),
        ("unsupported", ENABLED, [UNSUPPORTED]),
        ("unsupported", DISABLED, [NO_WORKER, UNSUPPORTED]),
        ("fails", ENABLED, [f"{UNEXPECTED}: no database"]),
        (
            "fails silently",
            ENABLED,
            [f"{UNEXPECTED}; please see the worker logs for more details."],
        ),
        ("unsupported", None, []),
    ],
)
@pytest.mark.parametrize("level", ["required", "REQUIRED"])
def test_required_support(
    says: str, group: GroupRules | None, expected: list[str], level: str
) -> None:
    """What the worker or the connector cannot do is refused; a standalone worker checks neither."""
    found = errors({"exactly.once.support": level, "says": says}, group)
    assert found.get("exactly.once.support", []) == expected


def test_a_source_that_says_nothing_may_only_be_requested() -> None:
    """The text names the way out."""
    (text,) = errors({"exactly.once.support": "required"}, ENABLED)["exactly.once.support"]
    assert 'reconfiguring the connector to use the value "requested" for this property' in text
    assert errors({"exactly.once.support": "requested"}, DISABLED) == {}


def test_boundaries_of_transactions() -> None:
    """Only a connector that can set boundaries may; an interval is not negative."""
    connector = {"transaction.boundary": "connector"}
    assert errors({**connector, "says": "supported"}, DISABLED) == {}
    (text,) = errors({**connector, "says": "unsupported"}, DISABLED)["transaction.boundary"]
    assert text.startswith("The connector does not support connector-defined transaction boundar")
    assert errors({**connector, "says": "unsupported"}, None) == {}
    interval = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "-1"}
    assert "at least 0" in errors(interval, ENABLED)["transaction.boundary.interval.ms"][0]
    assert "transaction.boundary" in errors({"transaction.boundary": "never"}, ENABLED)
