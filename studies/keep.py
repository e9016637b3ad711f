"""Keep a finished study here, and write its line in README.md.

    python studies/keep.py RESULTS [RESULTS ...]     # each becomes studies/<name>
    python studies/keep.py --most-mb 3 RESULTS       # of a study whose verdicts need more
    python studies/keep.py                           # the lines of README.md alone

What was kept under the same name is replaced. Of a null study, whose records take 20 MB, only what
was made of them is kept, and kept.json says so. An analysis or verdict by older code is made again
with `paribus unpack studies/NAME DIR && paribus report DIR`, and then this.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import paribus
from paribus.decision.evidence import Evidence, State
from paribus.decision.word import word_of
from paribus.errors import ParibusError
from paribus.files import remove_folder, write_bytes
from paribus.results import ResultsFolder, keep
from paribus.results.formats import read_json, write_json
from paribus.results.keeping import MOST_KEPT, read_analysis
from paribus.results.store import PACKED_RECORDS

HOME = Path(__file__).parent
BEGIN, END = "<!-- answers: written by keep.py -->\n", "<!-- end of answers -->"
NONE_YET = "No study is finished yet.\n"


def keep_here(results: Path, most: int) -> Path:
    """Keep the study in `results` under its name, once what is kept of it verifies."""
    home = HOME / ResultsFolder(results).read_study().name.replace("gallery-", "gallery/", 1)
    is_null = (results / "null.json").is_file()
    new = keep(results, home.with_name(f"{home.name}-new"), most=None if is_null else most)
    if is_null:
        (new / PACKED_RECORDS).unlink()
        for name in ("report.html", "tables/scores.csv"):  # from which rates are counted again
            write_bytes(new / name, (results / name).read_bytes())
        about = read_json(new / "kept.json")
        write_json(new / "kept.json", about | {"left_out": ["weights", "records"]})
    elif findings := paribus.verify(new).findings:
        remove_folder(new)
        raise ParibusError(f"{results} does not verify as it is kept: {'; '.join(findings[:3])}")
    if home.exists():
        remove_folder(home)
    return new.rename(home)


def answer(kept: Path) -> str:
    """Say what came out, in a line: words, the arms that have each, and the effect on them."""
    if (kept / "null.json").is_file():
        return _of_null(read_json(kept / "null.json"))
    decided = {
        (one["arm"], one["metric"]): one["decided"] for one in read_analysis(kept)["contrasts"]
    }
    groups: dict[str, list[str]] = {}
    for verdict in read_json(kept / "verdict.json")["verdicts"]:
        arm, metric = verdict["arm"], verdict["metric"]
        effect = decided.get((arm, metric))
        what = f"{_word(verdict)} on {verdict['label']}"
        groups.setdefault(what, []).append(f"{arm} {effect['mean']:+.3f}" if effect else arm)
    told = [f"{what}: {', '.join(arms)}" for what, arms in groups.items()]
    return "; ".join(told) or "no contrast"


def _word(verdict: dict[str, Any]) -> str:
    """Return the word of a verdict; of an older one, which lacks it, what its evidence says."""
    if "word" in verdict:
        return verdict["word"]
    seen = dict(verdict["evidence"])
    return word_of(Evidence(seen.pop("invalid"), seen.pop("n"), State(**seen)))


def _of_null(null: dict[str, Any]) -> str:
    rates = (f"{one['name']} {one['rate']:.1%}" for one in null["rates"])
    return f"of {null['replicates']} replicates: {'; '.join(rates)}"


def with_answers(readme: str, kept: Iterable[Path]) -> str:
    """README.md with a row for each kept study between its marks."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = [
        f"| [`{one.name}`]({one.name}) | "
        f"`{read_json(one / 'kept.json')['root'][:16]}` | {answer(one)} |\n"
        for one in kept
    ]
    table = ["| study | root digest begins with | answer |\n", "| --- | --- | --- |\n", *rows]
    return before + BEGIN + ("".join(table) if rows else NONE_YET) + END + after


def main() -> int:
    """Keep what is named, then write README.md."""
    parser = argparse.ArgumentParser(description="Keep finished studies here")
    parser.add_argument("results", type=Path, nargs="*", help="results folders")
    parser.add_argument("--most-mb", type=float, default=MOST_KEPT / 1e6, help="size of each")
    given = parser.parse_args()
    try:
        for results in given.results:
            print(f"kept: {keep_here(results, round(1e6 * given.most_mb))}")
        kept = sorted(file.parent for file in HOME.glob("*/kept.json"))
        readme = HOME / "README.md"
        write_bytes(readme, with_answers(readme.read_text(encoding="utf-8"), kept).encode())
    except ParibusError as error:
        print(f"keep.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
