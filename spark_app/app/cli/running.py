"""The commands that stay up: `protolake run`, the app itself, and `protolake page`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from spark_app.app import temporary_folders
from spark_app.app.cli.exits import cause_of_end, hold, leave, report, report_unexpected
from spark_app.app.cli.options import LakeFolder, SettingsFile, load_to_write
from spark_app.lake.files import failpoints
from spark_app.lake.lake import Lake
from spark_app.model.errors import ExitCode, ProtolakeError, SchemaBump
from spark_app.model.log import log
from spark_app.settings import config
from spark_app.settings.models import Settings
from spark_app.units.spark import launcher, options
from spark_app.units.worker.block_pandas import spare_pandas

SecretFile = Annotated[Path, typer.Option(help="file with the secret of the cluster, as spark.auth_secret_file")]
Host = Annotated[str, typer.Option(help="address to listen on")]


def run(
    settings: SettingsFile = None,
    lake: LakeFolder = None,
    available_now: Annotated[
        bool, typer.Option(help="ingest the records that Kafka, or the source of files, has now; then exit with code 0")
    ] = False,
    land_only: Annotated[bool, typer.Option(help="write records to bronze only; a later run decodes them")] = False,
    accept_loss: Annotated[
        bool, typer.Option(help="skip the offsets that Kafka no longer has at this start, and list them in lost_events")
    ] = False,
    accept_gap: Annotated[
        bool, typer.Option(help="let the events go on after the units whose manifests are gone at this start")
    ] = False,
) -> None:
    """Ingest records from Kafka, or from files, into bronze, silver and gold."""
    stays_up = config.should_hold(settings)
    try:
        loaded = load_to_write(settings, lake, beside=False)
        stays_up = loaded.run.hold
        log.set_level(loaded.run.log_level)
        code, reason = _run(loaded, available_now, land_only, accept_loss, accept_gap)
    except ProtolakeError as error:
        code, reason = report(error), str(error)
    if code.held and stays_up:
        hold(code, reason)
    leave(code)


def page(
    settings: SettingsFile = None,
    lake: LakeFolder = None,
    prepare: Annotated[
        bool,
        typer.Option(
            "--prepare", help="make the folders that it writes to and the token, also of a new lake; then exit"
        ),
    ] = False,
) -> None:
    """Serve a page about the lake over HTTP, with metrics and alerts, also while the app is down."""
    loaded = load_to_write(settings, lake, beside=False)
    log.set_level(loaded.run.log_level)
    if prepare:
        from spark_app.page.files import make_folders

        make_folders(Lake(loaded.lake_address))
        raise typer.Exit
    from spark_app.page.server import serve

    serve(loaded)


def spark_master(
    secret_file: SecretFile,
    folder: Annotated[Path, typer.Option(help="where it keeps which apps and workers there are")],
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="port to listen on")] = 7077,
) -> None:
    """Run the master of a Spark cluster, for spark.master = spark://host:port."""
    from spark_app.units.spark.cluster import run_master

    run_master(host, port, folder, str(secret_file))


def spark_worker(
    master: Annotated[str, typer.Argument(help="such as spark://127.0.0.1:7077")],
    secret_file: SecretFile,
    folder: Annotated[Path, typer.Option(help="where executors run, and their logs are")],
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port to listen on; 0 = any")] = 0,
    cores: Annotated[int, typer.Option(min=1, help="cores to give to executors")] = 1,
    memory: Annotated[str, typer.Option(help="memory to give to executors")] = "2g",
) -> None:
    """Run a worker of a Spark cluster, which runs executors on its machine."""
    from spark_app.units.spark.cluster import run_worker

    run_worker(master, (host, port), cores, memory, folder, str(secret_file))


def _run(settings: Settings, *how: bool) -> tuple[ExitCode, str]:
    spare_pandas()
    _begin_jvm(settings)
    from spark_app.app.pipeline import Pipeline

    pipeline = Pipeline(settings, *how)
    try:
        code, reason = pipeline.run(), ""
    except SchemaBump as bump:
        log.info("schema bump", reason=str(bump), exit_code=int(ExitCode.BUMP))
        code, reason = ExitCode.BUMP, str(bump)
    except ProtolakeError as error:
        cause = cause_of_end(error, pipeline.lake.lease)
        code, reason = report(cause), str(cause)
    except Exception as error:
        code, reason = report_unexpected(error), str(error)
    with failpoints.around("leave"):
        pipeline.life.end(code, reason)
    pipeline.lake.lease.give_back()
    if code.held:
        pipeline.lake.lease.release()
    return code, reason


def _begin_jvm(settings: Settings) -> None:
    """Start Spark's JVM while the rest of the app is loaded. A JVM that does not fit later is replaced then."""
    if settings.spark.on_cluster:
        return
    with contextlib.suppress(OSError, ProtolakeError):  # told when the session starts
        folders = temporary_folders.begin(Lake(settings.lake_address))
        variables = options.variables(settings, folders[0]) | temporary_folders.variables(folders)
        launcher.of(settings.spark.class_archive).begin(options.of(settings, folders[0]), variables)
