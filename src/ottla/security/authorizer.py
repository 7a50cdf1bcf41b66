"""Authorizes operations by access control entries.

Any matching DENY wins, then any ALLOW; without an entry for the resource
`allow.everyone.if.no.acl.found` decides. ALLOW of some operations implies DESCRIBE; DENY implies
nothing. Decisions are cached until an entry changes.

Kafka: org.apache.kafka.metadata.authorizer.{StandardAuthorizer, StandardAuthorizerData}.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.ledger import BoundedCache
from ottla.protocol.api_keys import ApiKey
from ottla.security.acl import WILDCARD, Acl, Operation, PatternType, Permission, ResourceType

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterator

    from ottla.metrics.ledger import Ledger
    from ottla.security.principal import Principal

log = logging.getLogger("ottla.authorizer")
_ANY_USER: Final = "User:*"
_ANY_NAME: Final = "hardcode"
"""Stands for all resources of a kind, in Kafka as well."""
_IPV6_GROUPS: Final = 8
_CACHE_BYTES: Final = 8 << 20
"""Some 30,000 decisions about names of usual length."""
_IMPLIES: Final[dict[int, frozenset[int]]] = {
    Operation.DESCRIBE: frozenset(
        {
            Operation.DESCRIBE,
            Operation.READ,
            Operation.WRITE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.ALL,
        }
    ),
    Operation.DESCRIBE_CONFIGS: frozenset(
        {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL}
    ),
}
"""The operations whose ALLOW is enough for another one."""


class Decision(NamedTuple):
    """A decision and its reason: an entry, or the name of a rule."""

    is_allowed: bool
    rule: str | Acl


class StandardAuthorizer:
    """The entries in the metadata of a cluster."""

    def __init__(
        self, super_users: Collection[str] = (), *, allows_without_acl: bool = False
    ) -> None:
        self._super_users = frozenset(super_users)
        self._allows_without_acl = allows_without_acl
        self.is_loaded = False
        """Whether the entries are complete; until then only super users may do anything."""
        self.version = 0
        """Increases with each change."""
        self.decision_count = 0
        self.denied_count = 0
        self._by_id: dict[Hashable, Acl] = {}
        self._literal: dict[tuple[int, str], dict[Hashable, Acl]] = {}
        self._prefixed: dict[tuple[int, str], dict[Hashable, Acl]] = {}
        self._lengths: dict[int, Counter[int]] = {}
        """How many prefixes of each length there are, by the kind of resource."""
        self._cached: BoundedCache[tuple[Principal, str, int, int, str], bool] = BoundedCache(
            _CACHE_BYTES
        )
        self._cached_any: BoundedCache[tuple[Principal, str, int, int], bool] = BoundedCache(
            _CACHE_BYTES
        )

    def __len__(self) -> int:
        return len(self._by_id)

    def account_in(self, ledger: Ledger) -> None:
        """Register what is kept for clients."""
        for name, cache in (("decisions", self._cached), ("any_decisions", self._cached_any)):
            ledger.register(f"authorizer_{name}", cache.bound_bytes, cache.measure)

    # Entries

    def add(self, acl_id: Hashable, acl: Acl) -> None:
        """Add an entry, or replace the one with this id."""
        self.remove(acl_id)
        self._by_id[acl_id] = acl
        key = acl.resource_type, acl.resource_name
        if acl.pattern_type == PatternType.PREFIXED:
            if key not in self._prefixed:
                self._prefixed[key] = {}
                lengths = self._lengths.setdefault(acl.resource_type, Counter())
                lengths[len(acl.resource_name)] += 1
            self._prefixed[key][acl_id] = acl
        else:
            self._literal.setdefault(key, {})[acl_id] = acl
        self._changed()

    def remove(self, acl_id: Hashable) -> None:
        """Remove an entry, if there is one of this id."""
        acl = self._by_id.pop(acl_id, None)
        if acl is None:
            return
        is_prefixed = acl.pattern_type == PatternType.PREFIXED
        table = self._prefixed if is_prefixed else self._literal
        key = acl.resource_type, acl.resource_name
        del table[key][acl_id]
        if not table[key]:
            del table[key]
            if is_prefixed:
                lengths = self._lengths[acl.resource_type]
                lengths[len(acl.resource_name)] -= 1
                if not lengths[len(acl.resource_name)]:
                    del lengths[len(acl.resource_name)]
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._cached.clear()
        self._cached_any.clear()

    # Decisions

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: int,
        resource_type: int,
        name: str,
        *,
        request: int | None = None,
        is_audited: bool = True,
        is_logged: bool = True,
    ) -> bool:
        """Whether a principal may do an operation from a host; KafkaError before the load.

        The request is named in the log. What a request did not ask for, as each topic of a list of
        all, is not audited: it is no attempt, so it is neither logged nor counted. Others are
        counted, and logged unless the request has been denied many times.
        """
        key = principal, host, operation, resource_type, name
        known = self._cached.known.get(key)
        if known is None:
            decision = self.decide(str_of(principal), host, operation, resource_type, name)
            known = decision.is_allowed
            self._cached.keep(key, known, host, name)
        if not is_audited:
            return known
        self.decision_count += 1
        if not known:
            self.denied_count += 1
        level = logging.DEBUG if known else logging.INFO
        if is_logged and log.isEnabledFor(level):
            rule = self.decide(str_of(principal), host, operation, resource_type, name).rule
            _log(level, key, request, rule)
        return known

    def decide(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> Decision:
        """Decide without the cache."""
        if principal in self._super_users:
            return Decision(is_allowed=True, rule="SuperUser")
        if not self.is_loaded:
            text = "The authorizer has not loaded the access control entries yet."
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
        matching = list(self._matching(resource_type, name))
        if not matching:
            allows = self._allows_without_acl
            return Decision(allows, "DefaultAllow" if allows else "DefaultDeny")
        principals, hosts = {principal, _ANY_USER}, {host, _java_form(host), WILDCARD}
        denying = {operation, Operation.ALL}
        allowing = _IMPLIES.get(operation, denying)
        allowed: Acl | None = None
        for acl in (acl for acls in matching for acl in acls.values()):
            if acl.principal not in principals or acl.host not in hosts:
                continue
            if acl.permission == Permission.DENY and acl.operation in denying:
                return Decision(is_allowed=False, rule=acl)
            if acl.permission == Permission.ALLOW and acl.operation in allowing:
                allowed = acl
        if allowed is None:
            return Decision(is_allowed=False, rule="DefaultDeny")
        return Decision(is_allowed=True, rule=allowed)

    def _matching(self, resource_type: int, name: str) -> Iterator[dict[Hashable, Acl]]:
        literal = self._literal
        for one in (name, WILDCARD):
            found = literal.get((resource_type, one))
            if found:
                yield found
        lengths = self._lengths.get(resource_type)
        if lengths:
            for length in lengths:
                if length <= len(name):
                    found = self._prefixed.get((resource_type, name[:length]))
                    if found:
                        yield found

    def authorize_any(
        self, principal: Principal, host: str, operation: int, resource_type: int
    ) -> bool:
        """Whether an operation is allowed on at least one resource of a kind.

        Either it is allowed on a resource that no entry names, or by an ALLOW whose pattern no DENY
        covers completely; for the second, implied operations do not count.
        """
        key = principal, host, operation, resource_type
        known = self._cached_any.known.get(key)
        if known is None:
            known = self._is_any_allowed(*key)
            self._cached_any.keep(key, known, host)
        return known

    def _is_any_allowed(
        self, principal: Principal, host: str, operation: int, resource_type: int
    ) -> bool:
        who = str_of(principal)
        if self.decide(who, host, operation, resource_type, _ANY_NAME).is_allowed:
            return True
        fitting = [
            acl
            for acl in self._by_id.values()
            if acl.resource_type == resource_type
            and acl.principal in {who, _ANY_USER}
            and acl.host in {host, _java_form(host), WILDCARD}
            and acl.operation in {operation, Operation.ALL}
        ]
        denied = [acl for acl in fitting if acl.permission == Permission.DENY]
        allowed = [acl for acl in fitting if acl.permission == Permission.ALLOW]
        return any(not any(_dominates(denial, acl) for denial in denied) for acl in allowed)


def _log(
    level: int,
    decided: tuple[Principal, str, int, int, str],
    request: int | None,
    rule: str | Acl,
) -> None:
    """Write a line about a decision; the log escapes what is not printable in names.

    resourceRefCount, how often a request names the resource, is not counted.
    """
    principal, host, operation, resource_type, name = decided
    outcome = "Denied" if level == logging.INFO else "Allowed"
    log.log(
        level,
        "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s "
        "for request = %s with resourceRefCount = 1 based on rule %s",
        principal,
        outcome,
        Operation(operation).name,
        host,
        ResourceType(resource_type).name.title().replace("_", ""),
        name,
        "none" if request is None else ApiKey(request).api_name,
        rule if isinstance(rule, str) else _rule_text(rule),
        extra={
            "event": f"acl.{outcome.lower()}",
            "client": host,
            # a denial may hide only denials of the same kind, never another user's
            "limited_by": (principal, operation, resource_type, request),
        },
    )


def log_further_denials(
    principal: Principal, host: str, kind: tuple[int, int], request: int
) -> None:
    """Write that what else a request is denied has no lines."""
    operation, resource_type = kind
    log.info(
        "Principal = %s is Denied operation = %s from host = %s on all further resources of type "
        "= %s that it may not use for request = %s; they are counted, not listed",
        principal,
        Operation(operation).name,
        host,
        ResourceType(resource_type).name.title().replace("_", ""),
        ApiKey(request).api_name,
        extra={
            "event": "acl.denied",
            "client": host,
            "limited_by": (principal, operation, resource_type, request),
        },
    )


def _rule_text(acl: Acl) -> str:
    """Return an entry as Kafka prints one."""
    fields = {
        "resourceType": ResourceType(acl.resource_type).name,
        "resourceName": acl.resource_name,
        "patternType": PatternType(acl.pattern_type).name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": Operation(acl.operation).name,
        "permissionType": Permission(acl.permission).name,
    }
    listed = ", ".join(f"{name}={value}" for name, value in fields.items())
    return f"MatchingAcl(acl=StandardAcl[{listed}])"


def _java_form(host: str) -> str:
    """Return an address as Java prints it: 0:0:0:0:0:0:0:1, where Python prints ::1.

    Entries of Kafka's users have that form; a DENY among them must count.
    """
    if ":" not in host:
        return host
    address, percent, zone = host.partition("%")
    begin, gap, end = address.partition("::")
    first, last = ([group for group in half.split(":") if group] for half in (begin, end))
    zeros = ["0"] * (_IPV6_GROUPS - len(first) - len(last)) if gap else []
    return ":".join((*first, *zeros, *last)) + percent + zone


def str_of(principal: Principal) -> str:
    """Return the form of entries."""
    return f"{principal.type}:{principal.name}"


def _dominates(denied: Acl, allowed: Acl) -> bool:
    """Whether a DENY's pattern matches all that an ALLOW's matches."""
    if denied.pattern_type == PatternType.LITERAL:
        if denied.resource_name == WILDCARD:
            return True
        return (
            allowed.pattern_type == PatternType.LITERAL
            and allowed.resource_name == denied.resource_name
        )
    is_wildcard = allowed.pattern_type == PatternType.LITERAL and allowed.resource_name == WILDCARD
    return not is_wildcard and allowed.resource_name.startswith(denied.resource_name)
