"""The login file that `KAFKA_OPTS` names for Java: users and passwords by section.

Compose files of Kafka's images have PLAIN's users only there. A section has a login module for each
mechanism; what is read is the text that `sasl.jaas.config` would have.

Kafka: org.apache.kafka.common.security.JaasContext, org.apache.kafka.common.security.JaasUtils.
"""

from __future__ import annotations

import re
from typing import Final

from ottla.security.jaas import parse_jaas, read_sections
from ottla.security.sasl.gssapi import GSSAPI
from ottla.security.sasl.oauthbearer import OAUTHBEARER
from ottla.security.sasl.plain import PLAIN
from ottla.security.sasl.scram import HASHES

OPTIONS_VARIABLE: Final = "KAFKA_OPTS"
SERVER: Final = "KafkaServer"
"""The section of a broker; `<listener>.KafkaServer` is that of one listener."""
CLIENT: Final = "KafkaClient"
_OPTION: Final = re.compile(
    r"""-Djava\.security\.auth\.login\.config==?(?:"([^"]*)"|'([^']*)'|(\S+))"""
)
_MECHANISMS: Final = {
    "PlainLoginModule": (PLAIN,),
    "ScramLoginModule": tuple(HASHES),
    "OAuthBearerLoginModule": (OAUTHBEARER,),
    "Krb5LoginModule": (GSSAPI,),
}
"""By the last part of a login module's class; modules of other vendors end in the same names."""


def login_file_path(options: str) -> str | None:
    """Return the file that the options of a Java process name, None without one."""
    found = _OPTION.search(options)
    return None if found is None else next(part for part in found.groups() if part is not None)


def entries_by_mechanism(text: str, *sections: str) -> dict[str, str]:
    """Return the JAAS texts of the first of these sections that exists, by mechanism.

    Raises ValueError for a file, or an entry of the section, that Java could not read.
    """
    known = read_sections(text)
    entries = next((known[name] for name in sections if name in known), [])
    found: dict[str, str] = {}
    for entry in entries:
        module = parse_jaas(entry).module.rpartition(".")[2]
        for mechanism in _MECHANISMS.get(module, ()):
            found.setdefault(mechanism, entry)
    return found
