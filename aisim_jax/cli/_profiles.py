"""`aisim profiles`: what can be priced, from which data; import more."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import _options as options
from ._progress import progress
from ._render import print_renderable, print_text


profiles_app = typer.Typer(help="Show, list and import embedded data.")


@profiles_app.command("list")
def list_tables(
    systems_path: options.SystemsPaths = None,
    format: options.PrintFormat = options.Format.table,
) -> None:
    """List the measured tables: system, engine, version, operations, origin."""
    from aisim_jax.report import profiles_csv, profiles_json, profiles_text
    from aisim_jax.systems import list_profiles

    records = list_profiles(tuple(systems_path or ()))
    if format is options.Format.json:
        print_text(profiles_json(records))
    elif format is options.Format.csv:
        print_text(profiles_csv(records))
    else:
        from aisim_jax.models import BUILT_FAMILIES, load_model, model_names

        families = [load_model(name).family for name in model_names()]
        priced = sum(family in BUILT_FAMILIES for family in families)
        print_renderable(profiles_text(records, priced))


@profiles_app.command()
def models(
    format: options.PlainPrintFormat = options.PlainFormat.table,
) -> None:
    """List the models whose geometry is embedded."""
    from aisim_jax.models import load_model, model_names
    from aisim_jax.report import models_json, models_text

    specs = [load_model(name) for name in model_names()]
    if format is options.PlainFormat.json:
        print_text(models_json(specs))
    else:
        print_renderable(models_text(specs))


@profiles_app.command()
def show(
    system: Annotated[str, typer.Argument(help="GPU system, e.g. h200_sxm.")],
    systems_path: options.SystemsPaths = None,
    format: options.PlainPrintFormat = options.PlainFormat.table,
) -> None:
    """Show the hardware specification and the data of one system."""
    from aisim_jax.report import system_json, system_text
    from aisim_jax.systems import list_profiles, load_system

    roots = tuple(systems_path or ())
    spec = load_system(system, roots)
    records = [record for record in list_profiles(roots) if record.system == system]
    if format is options.PlainFormat.json:
        print_text(system_json(spec, records))
    else:
        print_renderable(system_text(spec, records))


@profiles_app.command("import")
def import_profile(
    source: Annotated[
        str,
        typer.Argument(
            help="Installed package (aiconfigurator-core), wheel file, or an unpacked "
            "systems folder."
        ),
    ],
    system: options.System,
    backend: options.Engine,
    version: options.Version = None,
    output: Annotated[
        Path, typer.Option(help="Data root to write; use it with --systems-path.")
    ] = Path("profiles"),
) -> None:
    """Convert measured tables into a compact archive (needs the extra `import`)."""
    from aisim_jax.systems import import_tables

    with progress(f"importing {system}, {backend.value}"):
        path = import_tables(source, system, backend.value, version, output)
    print(f"Wrote {path}; price from it with --systems-path {output}")
