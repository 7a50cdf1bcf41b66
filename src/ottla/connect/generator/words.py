"""Words for texts, and the schemas of the quickstarts.

A change of any word changes what a restarted connector goes on with: add tables, leave these.

Kafka: the *_schema.avro files of Confluent's datagen.
"""

from __future__ import annotations

from typing import Any, Final

WORDS: Final[dict[str, tuple[str, ...]]] = {
    name: tuple(text.split(","))
    for name, text in {
        "city": "Amsterdam,Athens,Berlin,Bogota,Cairo,Chicago,Dublin,Hanoi,Helsinki,Istanbul,"
        "Jakarta,Kyiv,Lagos,Lima,Lisbon,London,Madrid,Milan,Mumbai,Nairobi,Oslo,Paris,Prague,Quito,"
        "Rome,Seoul,Sydney,Tokyo,Toronto,Vienna,Warsaw,Zurich",
        "color": "black,blue,brown,green,grey,orange,pink,purple,red,white,yellow",
        "country": "AR,AU,BE,BR,CA,CH,DE,DK,EG,ES,FI,FR,GB,GR,IE,IN,IT,JP,KE,KR,MX,NL,NO,NZ,PE,PL,"
        "PT,SE,TR,US",
        "first_name": "Ada,Ali,Ana,Ben,Chen,Clara,Daniel,Elena,Emil,Eva,Farid,Grace,Hana,Hugo,Ines,"
        "Ivan,Jonas,Julia,Kofi,Lars,Leo,Lina,Maria,Mina,Noah,Nora,Olga,Omar,Paul,Rosa,Sara,Tom",
        "last_name": "Adams,Bauer,Costa,Dubois,Evans,Ferrari,Garcia,Haas,Ivanova,Jensen,Kim,Larsen,"
        "Meyer,Nguyen,Okafor,Peeters,Rossi,Santos,Tanaka,Urban,Varga,Weber,Yilmaz,Zhang",
        "product": "apple,bread,butter,carrot,cheese,chocolate,coffee,cream,egg,flour,honey,jam,"
        "juice,lemon,milk,noodles,nuts,oil,onion,orange,pasta,pepper,potato,rice,salt,soup,sugar,"
        "tea,tomato,yoghurt",
    }.items()
}


def _field(name: str, kind: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "type": {"type": kind, "arg.properties": properties}}


_START_MS: Final = 1_487_715_775_521
"""The time of the first order and user of Confluent's datagen."""
_ADDRESS: Final = {
    "type": "record",
    "name": "address",
    "fields": [
        _field("city", "string", words="city"),
        _field("state", "string", regex="State_[1-9]\\d?"),
        _field("zipcode", "long", range={"min": 10_000, "max": 100_000}),
    ],
}
QUICKSTARTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "orders": (
        "orderid",
        {
            "type": "record",
            "name": "orders",
            "fields": [
                _field("ordertime", "long", iteration={"start": _START_MS, "step": 1000}),
                _field("orderid", "int", iteration={"start": 0}),
                _field("itemid", "string", regex="Item_[1-9][0-9]{0,2}"),
                _field("orderunits", "double", range={"min": 0.1, "max": 10.0}),
                {"name": "address", "type": _ADDRESS},
            ],
        },
    ),
    "users": (
        "userid",
        {
            "type": "record",
            "name": "users",
            "fields": [
                _field("registertime", "long", range={"min": _START_MS, "max": 1_519_273_364_600}),
                _field("userid", "string", regex="User_[1-9]"),
                _field("regionid", "string", regex="Region_[1-9]"),
                _field("gender", "string", options=["MALE", "FEMALE", "OTHER"]),
            ],
        },
    ),
    "pageviews": (
        "viewtime",
        {
            "type": "record",
            "name": "pageviews",
            "fields": [
                _field("viewtime", "long", iteration={"start": 1, "step": 10}),
                _field("userid", "string", regex="User_[1-9]"),
                _field("pageid", "string", regex="Page_[1-9][0-9]?"),
            ],
        },
    ),
    "clickstream": (
        "ip",
        {
            "type": "record",
            "name": "clickstream",
            "fields": [
                # 198.51.100.0/24 and 203.0.113.0/24 are for documentation (RFC 5737)
                _field("ip", "string", regex="203\\.0\\.113\\.1[0-9]"),
                _field("userid", "int", range={"min": 1, "max": 40}),
                _field("remote_user", "string", options=["-"]),
                _field("time", "string", regex="\\d{10}"),
                _field("_time", "long", iteration={"start": 1, "step": 10}),
                _field(
                    "request",
                    "string",
                    options=[
                        "GET /index.html HTTP/1.1",
                        "GET /images/track.png HTTP/1.1",
                        "GET /site/login.html HTTP/1.1",
                        "GET /site/user_status.html HTTP/1.1",
                        "POST /cart HTTP/1.1",
                    ],
                ),
                _field("status", "string", options=["200", "200", "200", "302", "404", "406"]),
                _field("bytes", "string", options=["278", "1289", "2048", "4006", "4096", "14096"]),
                _field("referrer", "string", options=["-", "https://example.com/"]),
                _field(
                    "agent",
                    "string",
                    options=[
                        "Mozilla/5.0 (X11; Linux x86_64)",
                        "Mozilla/5.0 (Macintosh)",
                        "curl/8",
                    ],
                ),
            ],
        },
    ),
}
"""The field of the key, and the schema."""
