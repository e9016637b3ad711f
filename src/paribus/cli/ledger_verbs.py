"""The verbs of the ledger: what it holds, whether it was edited, and two of them as one."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from paribus.cli.options import Json, print_json, show, show_path
from paribus.errors import ParibusError

if TYPE_CHECKING:
    from paribus.ledger import OpenedText

Ledger = Annotated[
    Path | None, Parameter(help="A ledger; by default that of PARIBUS_LEDGER, or the user's.")
]
MOST_SHOWN = 20  # entries


def show_ledger(path: Ledger = None, *, json: Json = False) -> None:
    """List held-out texts, who opened each, and what else was recorded."""
    from paribus.cli.ledger_tables import entries_table, texts_table
    from paribus.ledger import events_in, plain, texts_of

    where = _where(path)
    events = events_in(where)
    texts = texts_of(events)
    if json:
        print_json(
            {
                "schema_version": 1,
                "path": str(where),
                "texts": [_as_json(one) for one in texts],
                "entries": [plain(event) for event in events],
            }
        )
        return
    show_path(f"ledger: {where}")
    if not events:
        show("Nothing is recorded in it yet.")
        return
    show(texts_table(texts), entries_table(events[-MOST_SHOWN:]))
    if len(events) > MOST_SHOWN:
        show(f"the last {MOST_SHOWN} of {len(events)} entries; --json has all")


def verify_ledger(
    path: Ledger = None,
    *,
    results: Annotated[
        list[Path] | None,
        Parameter(
            negative=(),
            consume_multiple=True,
            help="Results folders, whose openings must be in it.",
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Check that no line of a ledger was edited, added or deleted."""
    from paribus.ledger import VARIABLE, Chain, entry_digest
    from paribus.results import ResultsFolder
    from paribus.results.opened_texts import read_reuse

    where = _where(path)
    if (path is not None or os.environ.get(VARIABLE)) and not where.exists():
        raise ParibusError(f"{where} is not there; name a ledger")
    findings = Chain(where).verify()
    there = {entry_digest(one) for one in Chain(where).entries()} if not findings else set()
    for folder in results or ():
        said = read_reuse(ResultsFolder(folder))
        if said is None or not said.recorded:
            findings.append(f"{folder} has not recorded its opening in a ledger")
        elif said.entry not in there and (there or not findings):
            findings.append(f"{folder} has recorded its opening, and no entry is of it")
    n = len(there)
    if json:
        print_json({"schema_version": 1, "path": str(where), "entries": n, "findings": findings})
        return 3 if findings else 0
    for line in findings:
        show_path(f"does not agree: {where}: {line}")
    if not findings:
        show_path(f"checked: {where}: {n} entries, each with the digest of the one before")
    return 3 if findings else 0


def merge_ledgers(
    *ledgers: Annotated[Path, Parameter(help="Ledgers to join, each once or more.")],
    output: Annotated[
        Path,
        Parameter(name=["--output", "-o"], help="The ledger to write; one of them, or new."),
    ],
) -> None:
    """Join ledgers: every entry of each, by time, as one chain."""
    from paribus.ledger import Chain, as_events, merged

    if not ledgers:
        raise ParibusError("ledger merge takes ledgers: paribus ledger merge A B -o C")
    chains = []
    for path in ledgers:
        if not path.is_file():
            raise ParibusError(f"{path} is not there; name a ledger")
        if findings := Chain(path).verify():
            raise ParibusError(
                f"{path}: {findings[0]}; an edited ledger is not joined: restore it first"
            )
        chains.append(Chain(path).entries())
        as_events(chains[-1], path)
    if output.exists() and not any(output.samefile(path) for path in ledgers):
        raise ParibusError(
            f"{output} is there already; name it among those that are joined, or choose another"
        )
    whole = merged(chains)
    Chain(output).write(whole)
    show_path(f"merged: {output}: {len(whole)} entries of {len(ledgers)} ledgers")


def _where(path: Path | None) -> Path:
    from paribus.ledger import VARIABLE, ledger_path

    where = path or ledger_path()
    if where is None:
        raise ParibusError(f"{VARIABLE} is empty, which turns the ledger off; name a file in it")
    return where


def _as_json(text: OpenedText) -> dict[str, Any]:
    return {
        "text": text.text.model_dump(mode="json"),
        "studies": [asdict(use) for use in text.studies],
        "tests": text.tests,
    }
