"""Names of certificates and the rules that shorten them."""

from __future__ import annotations

import pytest

from ottla.security.distinguished_name import parse_rules, short_name, subject_name

NAME = "CN=kafka.example,OU=Dept A,O=Ottla,L=X,ST=Y,C=NL"


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        (((("countryName", "NL"),), (("commonName", "a"),)), "CN=a,C=NL"),
        (((("commonName", 'a,b+c"d\\e'),),), 'CN=a\\,b\\+c\\"d\\\\e'),
        (((("commonName", " a "),),), "CN=\\ a\\ "),
        (((("commonName", "#a"),),), "CN=\\#a"),
        (((("commonName", "a"), ("userId", "b")),), "CN=a+UID=b"),
        (((("emailAddress", "a@b"),),), "1.2.840.113549.1.9.1=#1603614062"),
    ],
)
def test_a_subject_in_the_form_of_rfc_2253(subject: object, name: str) -> None:
    """The last part first, special characters escaped, other kinds as numbers."""
    assert subject_name(subject) == name  # type: ignore[arg-type] # shorter here


@pytest.mark.parametrize(
    ("rules", "name", "short"),
    [
        ("DEFAULT", NAME, NAME),
        ("", NAME, NAME),
        ("RULE:^CN=(.*?),.*$/$1/", NAME, "kafka.example"),
        ("RULE:^CN=(.*?),.*$/$1/U", NAME, "KAFKA.EXAMPLE"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L , DEFAULT", NAME, "kafka.example@dept a"),
        ("RULE:^UID=(.*)$/$1/,RULE:^CN=([^,]+),.*$/x$1/", NAME, "xkafka.example"),
        ("RULE:^CN=(\\w+)\\/(\\w+)$/$2\\/$1/", "CN=a/b", "b/a"),
    ],
)
def test_the_first_rule_that_fits_counts(rules: str, name: str, short: str) -> None:
    """L and U change the case, DEFAULT keeps the name."""
    assert short_name(name, parse_rules(rules)) == short


def test_a_name_without_a_rule_is_refused() -> None:
    """As in Kafka there is no principal then."""
    with pytest.raises(ValueError, match="No rules apply"):
        short_name(NAME, parse_rules("RULE:^UID=(.*)$/$1/"))


@pytest.mark.parametrize(
    "text", ["RULE:", "RULE:a", "RULE:a/b", "RULE:a/b/X", "DEFAULT DEFAULT", "x"]
)
def test_invalid_rules_are_refused(text: str) -> None:
    """With Kafka's words."""
    with pytest.raises(ValueError, match="Invalid rule"):
        parse_rules(text)
