"""Write how much paired differences vary between seeds in the kept studies, for `paribus plan`.

    python studies/spreads.py        # writes src/paribus/analysis/spreads.json

By metric and kind of change (the sections of a study that an arm changes), the SDs of the paired
differences of every contrast with at least five seed pairs, as the kept analyses have them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paribus.analysis.spreads import FILE, kind_of
from paribus.results import ResultsFolder
from paribus.results.formats import write_json
from paribus.results.keeping import is_kept, read_analysis
from paribus.statistics import DESCRIPTIVE_BELOW

HOME = Path(__file__).parent
SIGNIFICANT_DIGITS = 3


def spreads() -> dict[str, Any]:
    """Return what the file holds."""
    found: dict[tuple[str, tuple[str, ...]], dict[str, Any]] = {}
    for kept in sorted(path.parent for path in HOME.glob("*/kept.json")):
        if not is_kept(kept):  # without its records, nobody can check the numbers
            continue
        study = ResultsFolder(kept).read_study()
        for contrast in read_analysis(kept)["contrasts"]:
            paired = contrast["paired"]
            if not paired or paired["n"] < DESCRIPTIVE_BELOW or not paired["sd"] > 0:
                continue
            key = (contrast["metric"], kind_of(study, contrast["arm"]))
            entry = found.setdefault(key, {"sds": [], "pairs": [], "studies": []})
            entry["sds"].append(float(f"{paired['sd']:.{SIGNIFICANT_DIGITS}g}"))
            entry["pairs"].append(paired["n"])
            if study.name not in entry["studies"]:
                entry["studies"].append(study.name)
    rows = [
        {"metric": metric, "kind": list(kind), "sds": sorted(of["sds"])}
        | {"pairs": [min(of["pairs"]), max(of["pairs"])], "studies": of["studies"]}
        for (metric, kind), of in sorted(found.items())
    ]
    return {"written_by": "studies/spreads.py", "spreads": rows}


if __name__ == "__main__":
    write_json(FILE, spreads())
    print(f"written: {FILE}")
