"""`ottla acls`: list, add and remove access control entries.

Kafka: bin/kafka-acls.sh, org.apache.kafka.tools.AclCommand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.connection import open_admin
from ottla.cli.options.flags import (
    controller_option,
    json_option,
    print_json,
    refuse_json_unless,
    server_options,
    wants_json,
)
from ottla.cli.options.joptsimple import ToolCommand
from ottla.cli.output.failures import fail
from ottla.errors import KafkaError
from ottla.security.acl import (
    CLUSTER_NAME,
    OPERATIONS,
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.security.principal import parse_principal
from ottla.views.acls import Resource, acl_document, acls_by_resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ottla.clients.blocking import Admin

    Command = Callable[..., Any]

EXAMPLES = """
\b
Examples:
  ottla acls --bootstrap-server localhost:9092 --list
  ottla acls --bootstrap-server localhost:9092 --add --allow-principal User:alice \\
      --operation Read --topic events --group readers
  ottla acls --bootstrap-server localhost:9092 --add --allow-principal User:bob --producer \\
      --topic events
  ottla acls --bootstrap-server localhost:9092 --remove --topic events --force
"""
_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user_principal": ResourceType.USER,
}
_PRODUCER = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
_PRODUCER_ID = (Operation.WRITE, Operation.DESCRIBE)
_CONSUMER = (Operation.READ, Operation.DESCRIBE)


def _many(*names: str) -> Callable[[Command], Command]:
    return click.option(*names, multiple=True)


@click.command("acls", cls=ToolCommand, epilog=EXAMPLES)
@server_options
@controller_option
@json_option
@click.option("--add", is_flag=True, help="Add entries.")
@click.option("--remove", is_flag=True, help="Remove entries.")
@click.option("--list", "list_", is_flag=True, help="List entries.")
@_many("--topic")
@_many("--group")
@_many("--transactional-id")
@_many("--delegation-token")
@_many("--user-principal")
@click.option("--cluster", is_flag=True, help="The cluster as a resource.")
@click.option("--resource-pattern-type", default="LITERAL", help="literal, prefixed, any, match.")
@_many("--operation")
@_many("--allow-principal")
@_many("--deny-principal")
@_many("--allow-host")
@_many("--deny-host")
@_many("--principal")
@click.option("--producer", is_flag=True, help="What a producer needs: Write, Describe, Create.")
@click.option("--consumer", is_flag=True, help="What a consumer needs: Read, Describe.")
@click.option("--idempotent", is_flag=True, help="With --producer: IdempotentWrite.")
@click.option("--force", is_flag=True, help="Do not ask before entries are removed.")
def acls(**options: Any) -> None:
    """List, add and remove access control entries."""
    options["list"] = options.pop("list_")
    action = _checked_action(options)
    refuse_json_unless(action, "list")
    servers = options["bootstrap_server"]
    try:
        with open_admin(
            servers, options["command_config"], bootstrap_controller=options["bootstrap_controller"]
        ) as admin:
            {"add": _add, "remove": _remove, "list": _list}[action](admin, options)
    except KafkaError as error:
        fail(f"Error while executing ACL command: {error}")


def _checked_action(options: dict[str, Any]) -> str:
    places = [options["bootstrap_server"], options["bootstrap_controller"]]
    if all(places):
        raise click.UsageError(
            "Only one of --bootstrap-server or --bootstrap-controller must be specified"
        )
    if not any(places):
        raise click.UsageError(
            "One of --bootstrap-server or --bootstrap-controller must be specified"
        )
    actions = [action for action in ("list", "add", "remove") if options[action]]
    if len(actions) != 1:
        raise click.UsageError("Command must include exactly one action: --list, --add, --remove.")
    if options["principal"] and not options["list"]:
        raise click.UsageError("The --principal option is only available if --list is set")
    if options["producer"] and not options["topic"]:
        raise click.UsageError("With --producer you must specify a --topic")
    if options["idempotent"] and not options["producer"]:
        raise click.UsageError("The --idempotent option is only available if --producer is set")
    is_consumer = options["topic"] and options["group"]
    if options["consumer"] and (
        not is_consumer
        or (not options["producer"] and (options["cluster"] or options["transactional_id"]))
    ):
        raise click.UsageError(
            "With --consumer you must specify a --topic and a --group and no --cluster or "
            "--transactional-id option should be specified."
        )
    return actions[0]


def _pattern(options: dict[str, Any]) -> PatternType:
    name = options["resource_pattern_type"].upper()
    if name not in {pattern.name for pattern in PatternType if pattern}:
        fail(f"Invalid resource-pattern-type: {options['resource_pattern_type']}")
    return PatternType[name]


def _resources(options: dict[str, Any]) -> list[Resource]:
    """Return the resources of the flags."""
    pattern = _pattern(options)
    resources = [
        Resource(kind, name.strip(), pattern)
        for option, kind in _RESOURCES.items()
        for name in options[option]
    ]
    if options["cluster"] or options["idempotent"]:
        resources.append(Resource(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL))
    return resources


def _needed_resources(options: dict[str, Any]) -> list[Resource]:
    """Return the resources of the flags; ends the tool without any, with Kafka's text."""
    resources = _resources(options)
    if not resources:
        fail(
            "You must specify at least one resource: --topic <topic> or --cluster or "
            "--group <group> or --delegation-token <Delegation Token ID>"
        )
    return resources


def _operations(options: dict[str, Any]) -> list[Operation]:
    known = {kind.name.replace("_", ""): kind for kind in Operation if kind}
    operations = []
    for text in options["operation"] or ("All",):
        operation = known.get(text.replace("_", "").upper())
        if operation is None:
            fail(f"ResourceType has no operation {text}")
        operations.append(operation)
    return operations


def _requested_acls(options: dict[str, Any]) -> dict[Resource, list[Acl]]:
    """Return the entries that the flags describe, by resource."""
    requested = {
        resource: list(_entries(resource, options, _operations_on(resource, options)))
        for resource in _needed_resources(options)
    }
    return {resource: entries for resource, entries in requested.items() if entries}


def _operations_on(resource: Resource, options: dict[str, Any]) -> list[Operation]:
    """Return the operations for one resource: of the flags, or of a producer or consumer."""
    if not options["producer"] and not options["consumer"]:
        operations = _operations(options)
        possible = {Operation.ALL, *OPERATIONS[resource.type]}
        wrong = [operation for operation in operations if operation not in possible]
        if wrong:
            names = ",".join(
                "".join(part.capitalize() for part in operation.name.split("_"))
                for operation in sorted(possible)
            )
            fail(f"ResourceType {resource.type.name} only supports operations {names}")
        return operations
    needed: list[Operation] = []
    if options["producer"]:
        needed += {
            ResourceType.TOPIC: _PRODUCER,
            ResourceType.TRANSACTIONAL_ID: _PRODUCER_ID,
            ResourceType.CLUSTER: (Operation.IDEMPOTENT_WRITE,) if options["idempotent"] else (),
        }.get(resource.type, ())
    if options["consumer"]:
        needed += {
            ResourceType.TOPIC: _CONSUMER,
            ResourceType.GROUP: (Operation.READ,),
        }.get(resource.type, ())
    return list(dict.fromkeys(needed))


def _entries(
    resource: Resource, options: dict[str, Any], operations: Iterable[Operation]
) -> Iterator[Acl]:
    for permission, word in ((Permission.ALLOW, "allow"), (Permission.DENY, "deny")):
        for principal in options[f"{word}_principal"]:
            try:
                parse_principal(principal.strip())
            except ValueError as error:
                fail(str(error))
            for host in options[f"{word}_host"] or (WILDCARD,):
                for operation in operations:
                    yield Acl(
                        resource.type,
                        resource.pattern,
                        resource.name or "",
                        principal.strip(),
                        host.strip(),
                        operation,
                        permission,
                    )


def _print(title: str, by_resource: dict[Resource, list[Acl]]) -> None:
    for resource, entries in by_resource.items():
        lines = "".join(
            "\t(principal={principal}, host={host}, operation={operation}, "
            "permissionType={permission_type})\n".format_map(acl_document(acl))
            for acl in entries
        )
        click.echo(f"{title} for resource `{resource}`: \n {lines}")


def _add(admin: Admin, options: dict[str, Any]) -> None:
    if _pattern(options) in {PatternType.ANY, PatternType.MATCH}:
        fail(f"A '--resource-pattern-type' value of '{_pattern(options).name}' is not valid when "
             "adding acls.")  # fmt: skip
    if not options["allow_principal"] and not options["deny_principal"]:
        fail("You must specify one of: --allow-principal, --deny-principal when trying to add "
             "ACLs.")  # fmt: skip
    requested = _requested_acls(options)
    _print("Adding ACLs", requested)
    outcomes = admin.create_acls([acl for entries in requested.values() for acl in entries])
    for error in outcomes.values():
        if error is not None:
            raise error


def _filters(options: dict[str, Any]) -> list[AclFilter]:
    resources = _resources(options) or [Resource(ResourceType.ANY, None, PatternType.ANY)]
    return [_filter(resource) for resource in resources]


def _filter(resource: Resource) -> AclFilter:
    return AclFilter(
        resource.type, resource.pattern, resource.name, None, None, Operation.ANY, Permission.ANY
    )


def _remove(admin: Admin, options: dict[str, Any]) -> None:
    if options["allow_principal"] or options["deny_principal"]:
        requested = _requested_acls(options)
        shown = "".join(map(str, requested))
        question = f"Are you sure you want to remove ACLs from resource filter `{shown}`? (y/n)"
        filters = [AclFilter(*acl) for entries in requested.values() for acl in entries]
        resources = list(requested)
    else:
        resources = _needed_resources(options)
        filters = _filters(options)
        shown = "".join(map(str, resources))
        question = f"Are you sure you want to delete all ACLs for resource filter `{shown}`? (y/n)"
    if not options["force"] and click.prompt(question, prompt_suffix="").lower() != "y":
        return
    for outcome in admin.delete_acls(filters).values():
        if isinstance(outcome, KafkaError):
            raise outcome
    _show(admin, resources)


def _list(admin: Admin, options: dict[str, Any]) -> None:
    if wants_json():
        by_resource = acls_by_resource(admin, _filters(options), options["principal"])
        print_json([acl_document(acl) for entries in by_resource.values() for acl in entries])
        return
    if not options["principal"]:
        _show(admin, _resources(options) or [Resource(ResourceType.ANY, None, PatternType.ANY)])
        return
    for principal in options["principal"]:
        click.echo(f"ACLs for principal `{principal}`")
        _print("Current ACLs", acls_by_resource(admin, _filters(options), [principal]))


def _show(admin: Admin, resources: Iterable[Resource]) -> None:
    filters = [_filter(resource) for resource in resources]
    _print("Current ACLs", acls_by_resource(admin, filters))
