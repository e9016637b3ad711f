"""`paribus ledger`: which held-out texts were opened, and by which studies."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from paribus.cli.options import Json, print_json, show, show_path
from paribus.errors import ParibusError


def ledger(path: Path | None = None, *, json: Json = False) -> None:
    """List which texts were opened, and by which studies.

    Args:
        path: A ledger; by default that of PARIBUS_LEDGER, or the user's.
    """
    from paribus.ledger import VARIABLE, events_in, ledger_path, uses
    from paribus.report.table_model import Table

    if path is not None and not path.is_file():
        raise ParibusError(f"there is no ledger {path}; name the file of one")
    path = path or ledger_path()
    if path is None:
        raise ParibusError(f"{VARIABLE} is empty, which turns the ledger off; name a file in it")
    events = events_in(path)
    texts = {event.text.digest: event.text for event in events if event.text}
    opened = [(text, uses(events, [text])) for text in texts.values()]
    if json:
        listed = [
            {"text": text.model_dump(mode="json"), "studies": list(map(asdict, studies))}
            for text, studies in opened
        ]
        entries = [event.entry for event in events]
        print_json({"schema_version": 1, "path": str(path), "texts": listed, "entries": entries})
        return
    show_path(f"ledger: {path}, {len(events)} entries")
    rows = [
        (
            text.digest[:8],
            str(sum(use.is_test for use in studies)),
            str(sum(not use.is_test for use in studies)),
            str(sum(use.tests for use in studies)),
            studies[0].time[:10],
            studies[0].study,
        )
        for text, studies in opened
    ]
    head = ("text", "tested", "validated", "tests", "since", "first study")
    show(Table("texts", "", head, rows))
