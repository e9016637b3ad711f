"""Write the ledger of the kept studies: which text was opened when, before which design.

    python studies/ledger.py                # ledger.jsonl here, and the table in README.md
    PARIBUS_LEDGER=studies/ledger.jsonl paribus ledger

Everything in it is read from the records that are kept: registrations, test_part.json, looks and
verdicts. Entries that others have added to the ledger stay, such as those of the ledger that a
study ran with, and what they tell is not told again. Of validation text, and of a verdict, no
record of the first studies says when; it stands with the time of the registration, which was
minutes before.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from paribus.errors import ParibusError
from paribus.files import write_bytes
from paribus.ledger import Event, events_in, ledger_file, uses
from paribus.results import ResultsFolder
from paribus.results.formats import read_json
from paribus.results.opened_texts import events_of

HOME = Path(__file__).parent
LEDGER = HOME / "ledger.jsonl"
BEGIN, END = "<!-- texts: written by ledger.py -->\n", "<!-- end of texts -->"


def events_of_kept(home: Path = HOME) -> list[Event]:
    """Return what the records of all kept studies say, in no order."""
    found: list[Event] = []
    for file in sorted(home.glob("*/registration.json")):
        found += events_of(ResultsFolder(file.parent), is_begun=True)
    return found


def with_texts(readme: str, events: Iterable[Event], home: Path = HOME) -> str:
    """README.md with a row for each kept study between its marks, in the order of registration."""
    events = list(events)
    files = home.glob("*/registration.json")
    kept = {file.parent.name: read_json(file)["registered_at"] for file in files}
    rows = []
    for name, registered in sorted(kept.items(), key=lambda item: (item[1], item[0])):
        mine = [one for one in events if one.text and one.study == name]
        # Of a study that seals a part, that part; else its validation text.
        judged = max(mine, key=lambda one: one.text.role == "test")
        before = [
            use for use in uses(events, [judged.text], judged.registration) if use.time < registered
        ]
        tested = sum(use.is_test for use in before)
        rows.append(
            f"| `{name}` | {_minute(registered)} | {judged.text.role} `{judged.text.digest[:8]}` | "
            f"{_minute(judged.time) if judged.text.role == 'test' else 'from its first trial'} | "
            f"{tested} | {len(before) - tested} |\n"
        )
    table = [
        "| study | registered (UTC) | verdict is of | opened | tested before | validated before |",
        "\n| --- | --- | --- | --- | --- | --- |\n",
        *rows,
    ]
    before_marks, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before_marks + BEGIN + "".join(table) + END + after


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")


def main() -> int:
    """Write ledger.jsonl, then README.md."""
    try:
        recorded = {event.key for event in events_in(LEDGER)}
        with ledger_file(LEDGER).appending() as (_, append):
            for event in sorted(events_of_kept(), key=lambda event: event.time):
                if event.key not in recorded:
                    append(event.entry)
        events = events_in(LEDGER)
        readme = HOME / "README.md"
        write_bytes(readme, with_texts(readme.read_text(encoding="utf-8"), events).encode())
    except ParibusError as error:
        print(f"ledger.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
