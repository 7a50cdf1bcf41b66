"""Names of certificates and the rules that shorten them."""

from __future__ import annotations

import pytest

from ottla.security.distinguished_name import parse_rules, short_name, subject_name

NAME = "CN=kafka.example,OU=Dept A,O=Ottla,L=X,ST=Y,C=NL"


def der(tag: int, content: bytes) -> bytes:
    """Return an element of DER."""
    size = len(content)
    length = bytes([size]) if size < 0x80 else b"\x82" + size.to_bytes(2)
    return bytes([tag]) + length + content


def certificate(*names: tuple[tuple[str, int, bytes], ...]) -> bytes:
    """Return as much of a certificate as has a subject: numbers, kinds and bytes of attributes."""
    parts = [
        der(
            0x31,
            b"".join(
                der(0x30, der(6, bytes.fromhex(oid)) + der(tag, data)) for oid, tag, data in name
            ),
        )
        for name in names
    ]
    empty = der(0x30, b"")
    fields = [der(0xA0, der(2, b"\2")), der(2, b"\1"), *[empty] * 3, der(0x30, b"".join(parts))]
    return der(0x30, der(0x30, b"".join(fields)))


CN, C, UID, EMAIL, ORGANIZATION_ID = (
    "550403",
    "550406",
    "0992268993f22c640101",
    "2a864886f70d010901",
    "550461",
)
PRINTABLE, UTF8, IA5, BMP = 19, 12, 22, 30


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ([[(C, PRINTABLE, b"NL")], [(CN, UTF8, b"a")]], "CN=a,C=NL"),
        ([[(CN, UTF8, b'a,b+c"d\\e')]], 'CN=a\\,b\\+c\\"d\\\\e'),
        ([[(CN, UTF8, b"app=orders;<#>")]], "CN=app\\=orders\\;\\<\\#\\>"),
        ([[(CN, UTF8, b"  a ")]], "CN=\\ \\ a\\ "),
        ([[(CN, UTF8, b"  ")]], "CN=\\ \\ "),
        ([[(CN, UTF8, b"#a\0")]], "CN=\\#a\\00"),
        ([[(CN, UTF8, "日本".encode())]], "CN=日本"),
        ([[(CN, PRINTABLE, "ü".encode("latin-1"))]], "CN=\ufffd"),
        ([[(CN, BMP, "a".encode("utf-16-be"))]], "CN=\\00a"),
        ([[(CN, 3, b"\0a")]], "CN=#03020061"),
        ([[(CN, UTF8, b"a"), (UID, UTF8, b"b")]], "CN=a+UID=b"),
        ([[(EMAIL, IA5, b"a@b")]], "1.2.840.113549.1.9.1=#1603614062"),
        ([[(EMAIL, UTF8, b"a@b")]], "1.2.840.113549.1.9.1=#0c03614062"),
        ([[(ORGANIZATION_ID, UTF8, b"ID")]], "2.5.4.97=#0c024944"),
        ([[("883703", UTF8, b"t" * 200)]], f"2.999.3=#0c8200c8{'74' * 200}"),
        ([], ""),
    ],
)
def test_a_subject_in_the_form_of_rfc_2253(
    subject: list[list[tuple[str, int, bytes]]], name: str
) -> None:
    """As Java: the last part first, special characters escaped, others as numbers and bytes."""
    assert subject_name(certificate(*map(tuple, subject))) == name


@pytest.mark.parametrize("damaged", [b"", b"0", b"0\x05", b"0\0", certificate()[:-1]])
def test_a_damaged_certificate_has_no_subject(damaged: bytes) -> None:
    """The error is the one that ends a login."""
    with pytest.raises(ValueError, match="subject cannot be read"):
        subject_name(damaged)


@pytest.mark.parametrize(
    ("rules", "name", "short"),
    [
        ("DEFAULT", NAME, NAME),
        ("RULE:^CN=(.*?),.*$/$1/", NAME, "kafka.example"),
        ("RULE:^CN=(.*?),.*$/$1/U", NAME, "KAFKA.EXAMPLE"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L , DEFAULT", NAME, "kafka.example@dept a"),
        ("RULE:^UID=(.*)$/$1/,RULE:^CN=([^,]+),.*$/x$1/", NAME, "xkafka.example"),
        ("RULE:^CN=(\\w+)\\/(\\w+)$/$2\\/$1/", "CN=a/b", "b/a"),
        ("RULE:^CN=(\\w+)$/ascii/,DEFAULT", "CN=ü", "CN=ü"),
        ("RULE:^CN=(.*?),.*$/$1$9/", NAME, "kafka.example$9"),
        ("RULE:^CN=(.*?),.*$/$13/", NAME, "kafka.example3"),
        ("RULE:^CN=(.*?),.*$/\\$1-${1}/,DEFAULT", "CN=a", "CN=a"),
        ("RULE:^CN=(.*?),.*$/pre-\\$-$1/", NAME, "pre-$-kafka.example"),
        ("RULE:(?i)^cn=(.*?),.*$/$1/", NAME, "kafka.example"),
        ("RULE:^(?<n>CN)=([a-z&&[^b]]+)\\..*$/${n}:$2/", NAME, "CN:kafka"),
        ("RULE:^CN=(\\p{L}++).*$/$1/", "CN=Grüße-1", "Grüße"),
        ("RULE:CN=(.*)/$1/", "CN= a ", " a "),
        ("RULE:CN=(.*?)/x/", "CN=a", "xa"),
        ("RULE:.*/x/", "CN=a", "xx"),
    ],
)
def test_the_first_rule_that_fits_counts(rules: str, name: str, short: str) -> None:
    """L and U change the case, DEFAULT keeps the name."""
    assert short_name(name, parse_rules(rules)) == short


@pytest.mark.parametrize("rules", ["RULE:^UID=(.*)$/$1/", "", " ,,"])
def test_a_name_without_a_rule_is_refused(rules: str) -> None:
    """As in Kafka there is no principal then, as without any rule."""
    with pytest.raises(ValueError, match="No rules apply"):
        short_name(NAME, parse_rules(rules))


@pytest.mark.parametrize("replacement", ["$x", "$", "${n}", "$8$9"])
def test_a_bad_reference_refuses_the_name(replacement: str) -> None:
    """Java looks at it only when the rule fits; a second missing group is not escaped by Kafka."""
    rules = parse_rules(f"RULE:CN=(.*),.*/{replacement}/")
    with pytest.raises(ValueError, match=r"[Gg]roup|escaped"):
        short_name(NAME, rules)
    with pytest.raises(ValueError, match="No rules apply"):
        short_name("UID=x", rules)


@pytest.mark.parametrize(
    "text",
    [
        "RULE:",
        "RULE:a",
        "RULE:a/b",
        "RULE:a/b/X",
        "DEFAULT DEFAULT",
        "x",
        "RULE:(/x/",
        "RULE:a{/x/",
        "RULE:\\y/x/",
        "RULE:[a/x/",
        "RULE:(?u)a/x/",
        "RULE:\\p{Script}/x/",
    ],
)
def test_invalid_rules_are_refused(text: str) -> None:
    """With Kafka's words."""
    with pytest.raises(ValueError, match="Invalid rule"):
        parse_rules(text)
