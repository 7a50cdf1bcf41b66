"""Names of Kerberos and the rules that shorten them."""

from __future__ import annotations

import re

import pytest

from ottla.security.sasl.gssapi import (
    NoMatchingRule,
    kerberos_short_name,
    parse_kerberos_rules,
    parse_name,
)

REALM = "REALM.COM"


def short(text: str, *rules: str) -> str:
    """Return the short name by rules."""
    return kerberos_short_name(parse_name(text), parse_kerberos_rules(rules, REALM))


@pytest.mark.parametrize(
    ("name", "rules", "expected"),
    [
        ("alice", ["DEFAULT"], "alice"),
        (f"alice@{REALM}", ["DEFAULT"], "alice"),
        (f"kafka/host.example@{REALM}", ["DEFAULT"], "kafka"),
        ("alice@OTHER", [r"RULE:[1:$1](App.*)s/App\.(.*)/$1/g", "RULE:[1:$1]"], "alice"),
        ("App.service@OTHER", [r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g"], "service"),
        ("alice/admin@OTHER", ["RULE:[2:$1;$2](^.*;admin$)s/^.*;(.*)/$1/"], "admin"),
        ("alice/admin@OTHER", ["RULE:[2:$1-$2-$0]s/-OTHER//"], "alice-admin"),
        ("aXbXc@OTHER", ["RULE:[1:$1]s/X/-/g"], "a-b-c"),
        ("aXbXc@OTHER", ["RULE:[1:$1]s/X/-/"], "a-bXc"),
        ("Alice@OTHER", ["RULE:[1:$1]/L"], "alice"),
        ("Alice@OTHER", ["RULE:[1:$1](A.*)s/e$/a//U"], "ALICA"),
        ("alice@OTHER", ["RULE:[2:$1]", "RULE:[1:$1](b.*)", "RULE:[1:$1.$0]"], "alice.OTHER"),
    ],
)
def test_names_are_shortened(name: str, rules: list[str], expected: str) -> None:
    """By the first rule that fits."""
    assert short(name, *rules) == expected


@pytest.mark.parametrize(
    ("name", "rules", "text"),
    [
        ("alice@OTHER", ["DEFAULT"], "No rules apply to alice@OTHER, rules [DEFAULT]"),
        ("alice@OTHER", ["RULE:[1:$1@$0]"], "Non-simple name alice@OTHER after auth_to_local"),
        ("alice@OTHER", ["RULE:[1:$3]"], "index 3 from $3 is outside of the valid range 0 to 1"),
        ("alice@OTHER", ["RULE:[1:$]"], "bad format in username mapping in"),
        ("alice@OTHER", ["RULE:[1:$1]s/a/$2/"], "No group 2"),
    ],
)
def test_names_without_a_rule(name: str, rules: list[str], text: str) -> None:
    """The texts are Kafka's."""
    with pytest.raises(NoMatchingRule, match=re.escape(text)):
        short(name, *rules)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("default", "Invalid rule: default"),
        ("DEFAULTS", "Invalid rule: `DEFAULTS`, unmatched substring: `S`"),
        ("RULE:[1:$1](a*)s/a/b/x", "unmatched substring: `x`"),
        ("RULE:[:$1]", "Invalid rule: RULE:[:$1]"),
        ("RULE:[1:$1]([)", "Invalid rule: RULE:[1:$1]([)"),
    ],
)
def test_invalid_rules(rule: str, text: str) -> None:
    """They are reported at the start."""
    with pytest.raises(ValueError, match=re.escape(text)):
        parse_kerberos_rules([rule], REALM)


@pytest.mark.parametrize("name", ["a@b@c", "a/b/c@d", "a/b@c/d"])
def test_malformed_names(name: str) -> None:
    """More parts than a principal has."""
    with pytest.raises(ValueError, match="Malformed Kerberos name"):
        parse_name(name)
