"""A client's logins by GSSAPI: its Kerberos tickets, and the thread that renews them.

Tickets come from a keytab (`useKeyTab=true` in the JAAS text) or from a cache that `kinit` filled.

Kafka: org.apache.kafka.common.security.kerberos.KerberosLogin.
"""

from __future__ import annotations

import logging
import subprocess
from functools import partial
from random import SystemRandom
from typing import TYPE_CHECKING, Final

from ottla.clients.credential_renewal import keep_renewed
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.network import kerberos
from ottla.security.sasl.client import kerberos_login
from ottla.security.sasl.gssapi import ContextFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.clients.settings import ValidatedSettings
    from ottla.security.sasl.client import MechanismLogin

log = logging.getLogger("ottla.clients.login")
_RETRY_S: Final = 10.0
_KINIT_LIMIT_S: Final = 60.0


class KerberosLogins:
    """Begins logins at hosts; a thread renews the tickets until the client is gone."""

    def __init__(self, settings: ValidatedSettings, options: Mapping[str, str]) -> None:
        """Get the first tickets; ConfigError for incomplete settings, KafkaError without any."""
        try:
            self._login = kerberos.kerberos_login(options)
            service = kerberos.service_name(options, settings.sasl_kerberos_service_name)
        except ConfigError as error:
            raise ConfigError(f"sasl.mechanism=GSSAPI: {error}") from error
        self._kinit = settings.sasl_kerberos_kinit_cmd
        renewal = kerberos.Renewal(
            settings.sasl_kerberos_ticket_renew_window_factor,
            settings.sasl_kerberos_ticket_renew_jitter,
            settings.sasl_kerberos_min_time_before_relogin / 1000,
        )
        try:
            library = kerberos.system_kerberos()
            self._tickets = kerberos.Tickets(library, self._login, service, renewal)
        except ContextFailed as error:
            text = f"no ticket for GSSAPI: {error}"
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, text) from error
        self.prepare = self._tickets.prepare
        """Gets the ticket for a host, before a connection to it is opened."""
        keep_renewed(self, "ottla-tickets", _RETRY_S)

    def __call__(self, host: str) -> MechanismLogin:
        """Begin a login at a host."""
        return kerberos_login(partial(self._tickets.begin, host), self._login.principal or "")

    def renew(self) -> bool:
        """Get new tickets; the current ones stay when that fails."""
        try:
            if self._login.keytab is None:
                self._run_kinit()
            self._tickets.renew()
        except (ContextFailed, OSError, subprocess.SubprocessError) as error:
            log.warning("cannot renew the Kerberos tickets: %s", error)
            return False
        return True

    def _run_kinit(self) -> None:
        cache = [] if self._login.cache is None else ["-c", self._login.cache]
        command = [self._kinit, "-R", *cache]
        subprocess.run(command, check=True, capture_output=True, timeout=_KINIT_LIMIT_S)  # noqa: S603 - the client's own setting

    def seconds_to_renewal(self) -> float:
        """Return the time until the tickets should be renewed."""
        try:
            return self._tickets.seconds_to_renewal(SystemRandom().random())
        except ContextFailed:
            return _RETRY_S
