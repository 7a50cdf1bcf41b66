"""Settings, addresses, names and offsets of the connectors of databases."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from ottla.config.problems import ConfigErrors
from ottla.connect.errors import ConnectException
from ottla.connect.jdbc.database import split_name
from ottla.connect.jdbc.queries import RowOffset
from ottla.connect.jdbc.settings import SINK, SOURCE
from ottla.connect.jdbc.sink import JdbcSinkConnector
from ottla.connect.jdbc.source import JdbcSourceConnector
from ottla.connect.jdbc.url import parse_address


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("jdbc:postgresql://db:5433/shop?user=u&password=s3cret", ("postgresql", "db", 5433)),
        ("postgresql://u:s3cret@db/shop", ("postgresql", "db", 5432)),
        ("jdbc:mysql://db/shop?user=u&password=s3cret&useUnicode=true", ("mysql", "db", 3306)),
        ("jdbc:mariadb://[::1]:99/shop?user=u&password=s3cret", ("mysql", "::1", 99)),
    ],
)
def test_addresses_of_java_are_read(url: str, expected: tuple[str, str, int]) -> None:
    """Kind, host and port, and never the password in a text."""
    given = {"connection.url": url, "topic.prefix": "", "mode": "bulk"}
    address = parse_address(SOURCE.parse(given), given)
    assert (address.kind, address.host, address.port) == expected
    assert (address.database, address.user) == ("shop", "u")
    assert address.password is not None
    assert address.password.reveal() == "s3cret"
    assert "s3cret" not in f"{address} {address!r}"


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("jdbc:oracle:thin:scott/s3cret@db:1521/shop", "it is not one of"),
        ("jdbc:mysql://db/shop?password=s3cret&trustCertificateKeyStoreUrl=x", "no counterpart"),
        ("jdbc:postgresql://db/shop?password=s3cret&sslfactory=x", "no counterpart"),
        ("jdbc:mysql://db/shop?password=s3cret&sslMode=perhaps", "is none of"),
    ],
)
def test_addresses_that_would_be_less_safe_are_refused(url: str, text: str) -> None:
    """One line without the password; nothing about TLS is ignored."""
    given = {"connection.url": url, "topics": "t"}
    with pytest.raises(ConfigErrors, match=text) as caught:
        parse_address(SINK.parse(given), given)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:mariadb://db/shop?password=s3cret&sslMode=verify-ca&serverSslCert=/none.pem",
        "jdbc:mariadb://db/shop?password=s3cret&sslMode=trust&serverSslCert=/",
        f"jdbc:mysql://db/shop?password=s3cret&sslMode=verify-full&serverSslCert={__file__}",
        "jdbc:mysql://db/shop?password=s3cret&useSSL=true&serverSslCert=%00",
        "jdbc:mysql://db:65536/shop?password=s3cret",
        f"jdbc:postgresql://db:{'9' * 5000}/shop?password=s3cret",
    ],
)
def test_addresses_that_no_driver_takes_are_reasons_of_validation(url: str) -> None:
    """A certificate that cannot be read, and a port that is none, are errors of the setting."""
    for connector in (JdbcSourceConnector(), JdbcSinkConnector()):
        given = {"connection.url": url, "topic.prefix": "", "mode": "bulk"}
        errors = {it.name: it.errors for it in connector.validate(given) if it.errors}
        assert list(errors) == ["connection.url"]
        (text,) = errors["connection.url"]
        assert "of connection.url" in text
        assert "s3cret" not in text


def test_parameters_of_the_driver_are_translated() -> None:
    """Of the URL, and of settings that begin with `connection.`."""
    url = "jdbc:postgresql://db/shop?currentSchema=a&ssl=true&ApplicationName=x"
    given = {"connection.url": url, "connection.sslrootcert": "/ca.pem"}
    assert parse_address(SINK.parse(given), given).arguments == {
        "connect_timeout": 10,
        "sslmode": "verify-full",
        "sslrootcert": "/ca.pem",
        "application_name": "x",
        "options": "-csearch_path=a",
    }
    given = {"connection.url": "jdbc:mariadb://db/shop?sslMode=verify-full"}
    context = parse_address(SINK.parse(given), given).arguments["ssl"]
    assert context.check_hostname


def test_names_are_split_as_they_are_quoted() -> None:
    """Both kinds of quotes, and dots within them."""
    assert split_name('"a.b"."c""d"') == ["a.b", 'c"d']
    assert split_name("`a`.b") == ["a", "b"]
    for bad in ("", "a..b", '"a"b', "a."):
        with pytest.raises(ConnectException):
            split_name(bad)


def test_offsets_have_confluents_form() -> None:
    """Milliseconds, nanoseconds of the second, and the number."""
    stored = {"timestamp": 1_700_000_000_123, "timestamp_nanos": 123_456_000, "incrementing": 7}
    offset = RowOffset.parse(stored)
    moment = dt.datetime(2023, 11, 14, 22, 13, 20, 123_456, dt.UTC)
    assert offset == RowOffset(moment, 7)
    assert offset.stored() == stored
    assert RowOffset.parse({"timestamp": 1500}).stored()["timestamp_nanos"] == 500_000_000
    before = {"timestamp": -1, "timestamp_nanos": 999_000_000}
    assert RowOffset.parse(before).stored() == before
    for bad in ({"incrementing": "7"}, {"timestamp": True}, {"timestamp": 1 << 62}):
        with pytest.raises(ConnectException):
            RowOffset.parse(bad)


@pytest.mark.parametrize(
    ("config", "name", "text"),
    [
        ({"mode": "timestamp"}, "timestamp.column.name", "needs"),
        ({"mode": "bulk", "query": "q", "table.whitelist": "t"}, "query", "together"),
        ({"mode": "bulk", "query": "q"}, "query", "have no types"),
        ({"mode": "sometimes"}, "mode", "must be one of"),
        ({"mode": "bulk", "table.include.list": "("}, "table.include.list", "regular"),
        ({"mode": "bulk", "db.timezone": "Mars/Base"}, "db.timezone", "Invalid time zone"),
    ],
)
def test_settings_of_a_source_that_contradict(config: Any, name: str, text: str) -> None:
    """`validate` has the reason at the setting."""
    given = {"connection.url": "jdbc:sqlite:x", "topic.prefix": "p", **config}
    errors = {it.name: it.errors for it in JdbcSourceConnector().validate(given) if it.errors}
    assert list(errors) == [name]
    assert text in errors[name][0]


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"delete.enabled": "true"}, "delete.enabled"),
        ({"insert.mode": "upsert"}, "pk.mode"),
        ({"pk.mode": "kafka", "pk.fields": "a,b"}, "pk.fields"),
    ],
)
def test_settings_of_a_sink_that_contradict(config: Any, name: str) -> None:
    """`validate` has the reason at the setting."""
    given = {"connection.url": "jdbc:sqlite:x", **config}
    outcomes = JdbcSinkConnector().validate(given)
    assert [it.name for it in outcomes if it.errors] == [name]
