"""Write the spread of seed differences that `paribus plan` starts from, of the kept studies.

    python studies/spreads.py

Of every contrast of a kept study with at least five seed pairs: the SD of its paired differences,
as the endpoint is compared. By metric: the median, the quartiles, and from how many contrasts.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import paribus
from paribus.results.keeping import read_analysis

HOME = Path(__file__).parent
TARGET = Path(paribus.__file__).parent / "study" / "spreads.json"


def main() -> None:
    """Write the file."""
    found: dict[str, list[float]] = {}
    for kept in sorted(HOME.glob("*/kept.json")):
        try:
            analysis = read_analysis(kept.parent)
        except (OSError, paribus.ParibusError):
            continue  # the records of the null study are not kept
        for contrast in analysis["contrasts"]:
            paired = contrast["paired"]
            if paired and paired["n"] >= 5 and paired["sd"] > 0:
                found.setdefault(contrast["metric"], []).append(paired["sd"])
    spreads = {
        metric: {
            "contrasts": len(sds),
            **{
                name: float(f"{np.quantile(sds, q):.3g}")
                for name, q in (("low", 0.25), ("median", 0.5), ("high", 0.75))
            },
        }
        for metric, sds in sorted(found.items())
        if len(sds) >= 10
    }
    TARGET.write_text(json.dumps(spreads, indent=1) + "\n")


if __name__ == "__main__":
    main()
