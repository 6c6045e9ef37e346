"""What is wrong with settings as far as it is known before the first record: `settings --check`. With `--live` servers
are asked, and their schemas are compared with the settings as the app does it, in a lake that is thrown away."""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlsplit

from spark_app.followers.gold.spec import GoldSpec
from spark_app.followers.gold.sql_tables.files import files_of, read
from spark_app.lake.lake import Lake
from spark_app.model.catalog import Catalog
from spark_app.model.columns import field_of
from spark_app.model.errors import ProtolakeError
from spark_app.model.text import near
from spark_app.protobuf.schemas.limits import SchemaLookupError
from spark_app.settings.config import read_secret
from spark_app.settings.models import Settings
from spark_app.settings.silver import joined_names
from spark_app.sources.kafka.client import ANSWER_S, client_options
from spark_app.sources.kafka.topics import UNANSWERED, Topics
from spark_app.tables.expectations.checks import LINEAGE, columns_in_expression
from spark_app.tables.expectations.in_force import check_expectations_fit
from spark_app.tables.route import NAMING, names_tables
from spark_app.units.driver.feeds import check_folder
from spark_app.units.driver.open_lake import OpenLake


def find_faults(settings: Settings, live: bool = False) -> list[str]:
    """A line per fault, which begins with the setting."""
    # The app, which has `field_faults` from here, needs no sinks and no page.
    from spark_app.followers.sinks.open_sink import sink_of
    from spark_app.page.alerts.alarm import Alarm
    from spark_app.page.files import PageFiles

    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder, _noted(found):
        lake = Lake(replace(settings.lake_address, root=folder))
        lake.prepare()
        opened = OpenLake.of(lake, settings if live else settings.model_copy(update={"reference": {}}))
        if live:
            _ask(opened, found)
        catalog, routing = opened.resolver.ledger.catalog(), opened.admission.routing()
        for name, one in settings.expectations.items():
            with _noted(found):
                check_expectations_fit({name: one}, catalog, routing, settings.wrapper.names)
        with _noted(found):
            opened.projections.check(catalog, routing)
        for file in files_of(settings.tables.sql):
            with _noted(found, f"tables.sql: {file}"):
                read(file)
        for name, sink in settings.all_sinks.items():
            with _noted(found):
                target = sink_of(name, settings, lake)
                target.open(sink.options)
                columns_in_expression(f"sinks.{name}.where", sink.where or "true")
        for name, user in settings.users.items():
            for setting in ("password_file", "token_file"):
                with _noted(found):
                    if path := getattr(user, setting):
                        read_secret(path, f"users.{name}.{setting}")
        with _noted(found):
            client_options(settings.kafka)
        with _noted(found):
            Alarm(lake, settings, PageFiles(lake), lake.identity)
        with _noted(found):
            GoldSpec.all_of(settings)
            found += [f"{setting}: {fault}" for setting, fault in field_faults(settings, catalog).items()]
    return found


@contextlib.contextmanager
def _noted(found: list[str], setting: str = "") -> Iterator[None]:
    try:
        yield
    except ProtolakeError as error:
        found.append(str(error))
    except (*UNANSWERED, SchemaLookupError, OSError, UnicodeDecodeError) as error:
        found.append(f"{setting}: {error}")


def _ask(opened: OpenLake, found: list[str]) -> None:
    """Contact source, registry and webhook, and resolve the schemas of the own subjects."""
    settings, resolver, alerts = opened.settings, opened.resolver, opened.settings.alerts
    with _noted(found, f"kafka: {settings.kafka.brokers}"):
        check_folder(settings) if settings.source.kind == "files" else Topics(settings.kafka).look()
    with _noted(found, f"registry.url: {settings.registry.url}"):
        resolver.load_subject_versions()
        if not resolver.ledger.entries:
            hint = near(settings.subject, resolver.registry.subjects())
            found.append(f"registry.subject: the registry has no subject {settings.subject}; {hint}")
    kept_out = (one for one in resolver.ledger.entries.values() if one.outcome != "decodable")
    found += [f"registry.subject: schema {one.key} cannot be used: {one.detail}" for one in kept_out]
    with _noted(found, "alerts.webhook: nothing answers there"):
        address = read_secret(alerts.webhook_file, "alerts.webhook_file") if alerts.webhook_file else alerts.webhook
        if host := urlsplit(address.strip()).hostname:
            port = urlsplit(address.strip()).port or (443 if address.startswith("https") else 80)
            socket.create_connection((host, port), ANSWER_S).close()


def field_faults(settings: Settings, catalog: Catalog) -> dict[str, str]:
    """Setting that names a field -> why no message that is known has such a field, or one of a kind that works.
    Messages in wrappers are known with their first record."""
    if not catalog.columns or settings.wrapper.payload:
        return {}
    found, event, specs = dict[str, str](), settings.event, GoldSpec.all_of(settings)
    made = joined_names(settings.reference) | {n.casefold() for _, own in settings.silver.parts() for n in own.columns}
    made |= {name.casefold() for name in LINEAGE.names}
    named = [(spec.setting_of(name), name) for spec in specs for name in spec.names]
    for spec in (spec for spec in specs if spec.where):
        setting = f"gold.tables.{spec.kind}.where"
        named += [(f"{setting} = {name}", name) for name in sorted(columns_in_expression(setting, spec.where))]
    wanted = {setting: name for setting, name in named if name.casefold() not in made}
    routing = {f"event.routing = {event.routing}": event.routing} if event.route_by != "message" else {}
    messages = [(columns, catalog.aliases.get(kind, {})) for kind, columns in catalog.columns.items()]
    for setting, name in (wanted | routing).items():
        fields = [field_of(name, columns, columns.names, aliases)[1] for columns, aliases in messages]
        kinds = [field.type for field in fields if field is not None]
        if not kinds:
            found[setting] = f"no message has such a field; {near(name, (n for one, _ in messages for n in one.names))}"
        elif setting in routing and not any(map(names_tables, kinds)):
            found[setting] = f"is {kinds[0]}, which cannot name a table: {NAMING}"
    return found
