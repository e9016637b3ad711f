"""What a program said of itself by `paribus.trial`: numbers, batches and initial values.

It writes `trial.jsonl` into the folder of its trial, and `trial-N.jsonl` by each further process.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paribus.programs.values import Finder, number
from paribus.untrusted_io import RECORD_BYTES, open_regular

FILE = "trial.jsonl"
MOST_PARAMETERS = 100_000


@dataclass
class Reported:
    """What the processes of a program reported.

    Attributes:
        rows: what was logged and reported, as rows of JSON with their `step`, in order.
        results: those of them that are results.
        prefixes: of the training batches, {how many: digest of so many}; of several processes, a
            digest of theirs.
        initial: digests of parameters by name, of all processes.
        n_lines: lines that were read.
        seed: what it says that its seed is; None where it says none.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    prefixes: dict[int, str] = field(default_factory=dict)
    initial: dict[str, str] = field(default_factory=dict)
    n_lines: int = 0
    seed: int | None = None

    @property
    def data(self) -> str | None:
        """Return the digest of all batches that were seen; None where none was shown."""
        return self.prefixes[max(self.prefixes)] if self.prefixes else None

    @property
    def about(self) -> dict[str, Any]:
        """Return what a trial's record says of it."""
        prefixes = [[n, digest] for n, digest in sorted(self.prefixes.items())]
        return {"batches": prefixes, "initial": self.initial}


def read_reported(folder: Path) -> Reported:
    """Return what is in the files of a trial's folder; nothing where there are none.

    A line that is cut, or that somebody else wrote, is passed over. Raises ParibusError.
    """
    files = sorted(folder.glob("trial-*.jsonl"))
    first = folder / FILE
    reported = _read(first) if first.is_file() else Reported()
    for file in files:
        rank_report, rank = _read(file), file.stem.partition("-")[2]
        reported.initial |= {
            f"{name}@{rank}": digest for name, digest in rank_report.initial.items()
        }
        both = reported.prefixes.keys() & rank_report.prefixes.keys()
        reported.prefixes = {
            n: hashlib.sha256(
                f"{reported.prefixes[n]}{rank_report.prefixes[n]}".encode()
            ).hexdigest()
            for n in both
        }
    return reported


def _read(path: Path) -> Reported:
    reported = Reported()
    with open_regular(path, RECORD_BYTES) as file:
        for line in file:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if not isinstance(row, dict):
                continue
            reported.n_lines += 1
            if "paribus_trial" in row:
                reported.seed = row.get("seed")
            _note(reported, row)
    return reported


def _note(found: Reported, row: Mapping[str, Any]) -> None:
    step = {"step": row["step"]} if "step" in row else {}
    for name, rows in (("log", found.rows), ("report", found.results)):
        values = row.get(name)
        if isinstance(values, dict):
            rows.append(step | values)
    data, initial = row.get("data"), row.get("initial")
    if isinstance(data, dict) and isinstance(data.get("batches"), int):
        found.prefixes[data["batches"]] = str(data.get("digest"))[:64]
    if isinstance(initial, dict) and not found.rows:  # after a step they are not initial
        for name, digest in list(initial.items())[:MOST_PARAMETERS]:
            name, digest = str(name), str(digest)[:64]
            before = found.initial.get(name)
            # Noted twice, both count: a change in between is a difference.
            both = hashlib.sha256(f"{before}{digest}".encode()).hexdigest()
            found.initial[name] = digest if before is None else both


def reported_value(found: Reported, name: str, take: str, better: str) -> Finder:
    """Return what was reported under a name, or else logged under it."""
    for rows in (found.results, found.rows):
        finder = Finder("", take, better)
        for row in rows:
            if (value := number(row.get(name))) is not None:
                finder.add(value, number(row.get("step")))
        if finder.n:
            return finder
    return Finder("", take, better)
