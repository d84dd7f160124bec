"""`dsd-tune import`: measurements made elsewhere into a run directory, and tables of other servers into vLLM's form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsd_tune.records.measurement import Arm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsd_tune.importers.declared import Declared
    from dsd_tune.importers.schedule import ForeignTable
    from dsd_tune.records.published import Published


def import_(
    files: Annotated[
        list[Path], typer.Argument(help="Files, or folders of `vllm bench sweep serve`.", metavar="FILE...")
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--output-dir", metavar="RUN", help="New run directory for measurements.")
    ] = None,
    arm: Annotated[
        Arm | None, typer.Option(help="What rows with K >= 1 ran in: static (an engine for each K) or dsd (a table).")
    ] = None,
    k0: Annotated[
        Arm | None, typer.Option(help="What rows with K=0 ran in: no_spec (no speculation) or dsd (a table's K=0).")
    ] = None,
    unit: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=UNIT", help="s, ms, us, tok/s, percent or fraction.")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="Take only these rows of CSV files.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="vLLM's name of the drafting method, such as ngram.")] = None,
    allow_synthetic: Annotated[
        bool, typer.Option("--allow-synthetic", help="Believe acceptance on random prompts.")
    ] = False,
    max_num_seqs: Annotated[
        int | None, typer.Option(min=1, help="Where the table of another server ends, as in `vllm serve`.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an import in RUN.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print what was imported as JSON.")] = False,
) -> None:
    """Import measurements made elsewhere, or print another server's table as vLLM takes it.

    Measurements: CSV grids, results of `vllm bench serve`, folders of `vllm bench sweep serve`, Prometheus text
    (before and after), logs of offered and running requests, and acceptance as Model-Optimizer writes it
    (speculation_profile.json, beside a grid of times). Tables: SGLang adaptive JSON and TensorRT-LLM
    draft_len_schedule.
    """
    from dsd_tune.errors import UsageError
    from dsd_tune.importers.recognise import read_table

    tables = [table for path in files if (table := read_table(path, max_num_seqs))]
    if tables and len(files) > 1:
        raise UsageError("a table is no measurement, and is imported alone.", "Give one file.")
    if tables:
        _print_table(tables[0], out)
        return
    if out is None:
        raise UsageError("-o RUN is missing.", "Name a directory for what is imported.")
    declared = _declared(arm, k0, unit or [], where or [], method, allow_synthetic=allow_synthetic)
    published = _measurements(files, declared)
    _save(published, out, force=force, json_=json_)


def _declared(
    arm: Arm | None, k0: Arm | None, units: list[str], where: list[str], method: str | None, *, allow_synthetic: bool
) -> Declared:
    from dsd_tune.errors import UsageError
    from dsd_tune.importers.declared import Declared, Unit

    pairs = [(option, *text.partition("=")) for option, texts in (("unit", units), ("where", where)) for text in texts]
    for option, _, equals, value in pairs:
        if not equals or (option == "unit" and value not in set(Unit)):
            raise UsageError(f"--{option} takes COLUMN=VALUE.", f"Units are {', '.join(Unit)}.")
    try:
        return Declared(
            arm=arm,
            k0=k0,
            units=tuple((name, Unit(value)) for option, name, _, value in pairs if option == "unit"),
            where=tuple((name, value) for option, name, _, value in pairs if option == "where"),
            method=method,
            allow_synthetic=allow_synthetic,
        )
    except ValueError as error:
        raise UsageError(f"{error}.", "Say --arm static or dsd, and --k0 no_spec or dsd.") from error


def _measurements(paths: Sequence[Path], declared: Declared) -> Published:
    import time
    from importlib.metadata import version

    from dsd_tune.importers.join import join
    from dsd_tune.importers.recognise import read_measurements

    return join(read_measurements(paths, declared), declared, time.time(), version("dsd-tune"))


def _save(published: Published, out: Path, *, force: bool, json_: bool) -> None:
    import json

    from dsd_tune.model.caveats import caveats
    from dsd_tune.model.published import batch_sizes, ks, pooled_lengths
    from dsd_tune.storage import codec
    from dsd_tune.storage.published import save

    said = caveats(published)
    save(out, published, force=force)
    lengths = {str(k): length for k, length in sorted(pooled_lengths(published).items())}
    if json_:
        document = {"published": codec.encode(published), "acceptance_lengths": lengths, "caveats": said}
        typer.echo(json.dumps(document, indent=1))
        return
    for remark in (*published.remarks, *said):
        typer.echo(f"Note: {remark}.", err=True)
    sizes, tried = (", ".join(map(str, values)) or "none" for values in (batch_sizes(published), ks(published)))
    typer.echo(f"Imported {len(published.rows)} rows: batch sizes {sizes}; K {tried}.", err=True)
    for k, length in lengths.items():
        typer.echo(f"Acceptance length at K={k}: {length:.3f}.", err=True)
    if published.rows:
        typer.echo(f"dsd-tune fit {out}")
    else:
        typer.echo("Note: no time of a cell is among it, so there is nothing to fit; import a grid with it.", err=True)


def _print_table(foreign: ForeignTable, out: Path | None) -> None:
    import json

    from dsd_tune.engines.vllm_facts import TABLE_FIELD
    from dsd_tune.errors import UsageError

    table = foreign.table
    if table.k_max == 0:
        raise UsageError(f"this {foreign.kind} never drafts.", "Leave --speculative-config out.")
    for remark in foreign.remarks:
        typer.echo(f"Note: {remark}.", err=True)
    if out is not None:
        typer.echo(f"Note: a table is no measurement; nothing was written to {out}.", err=True)
    config: dict[str, object] = {"num_speculative_tokens": table.k_max}
    if not table.is_constant:
        config[TABLE_FIELD] = table.as_lists()
    typer.echo(json.dumps(config, separators=(",", ":")))
