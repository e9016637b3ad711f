"""Error rates of complete, tuned A/A studies: registered, tuned, run, analysed and judged.

    python benchmarks/null_studies.py RECORDS [STUDIES [CHOICE]]

Each study has a separate results folder and two identical arms. Each arm selects one of seven
learning rates on 3 or 6 tuning seeds; the verdict uses 5 or 10 seeds, or interim analyses at 5, 8
and 12 seeds. The trainer samples losses from the curves of two archived studies (as in
`choice.py`), so a study takes a second; `paribus.run`, `analyse` and `decide` are used as they are.
The output is the rate of p <= 5% with 95% intervals, and the rate of each verdict label, in per
cent. RECORDS is a JSON Lines file with all studies, from which an interrupted run resumes.
"""

import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

REGIMES = ("300 iterations", "1,500 iterations")
SEEDS = {"5": "[{0}]", "10": "[{0}]", "looks 5, 8, 12": "{{ looks = [5, 8, 12] }}"}
TRAINER = """
import sys
sys.path.insert(0, {here!r})
import numpy as np
from scipy.interpolate import CubicSpline, PchipInterpolator
from choice import PLACES, REGIMES
from paribus.extend import Declaration, Metric, TrialRecord
from paribus.rng import stream

MEAN, BETWEEN, SPREAD = REGIMES[{regime!r}]
CURVE, NOISE = CubicSpline(PLACES, MEAN), PchipInterpolator(PLACES, SPREAD)

class Drawn:
    def declare(self, study):
        return Declaration((Metric("loss", "loss", "nats", "lower", "evaluation", uniform=""),),
                           {{"study": ("drawn.study",)}}, frozenset(), "loss")

    def run(self, study, trials):
        for arm, seed in trials:
            drawn = study.setting(arm).drawn
            key = f"{{drawn['study']}}/{{seed}}"
            place = np.clip(np.log2(drawn["rate"]) + drawn["offset"], 0.0, 7.0)
            loss = float(CURVE(place)) + BETWEEN * stream(seed, key).standard_normal()
            own = stream(seed, f"{{key}}/{{arm}}/{{drawn['rate']}}").standard_normal()
            loss += float(NOISE(place)) * own
            yield (arm, seed), TrialRecord({{"loss": loss}}, {{}}, [9.0] + [loss] * 30,
                                           {{"study": drawn["study"]}}, None, 1.0)
"""
STUDY = """
name = "null"
trainer = "drawn.py:Drawn"
seeds = {seeds}
endpoints = [{{ metric = "loss", primary = true, margin = 0.02 }}]
drawn = {{ study = "{number}", offset = {offset}, rate = 8.0, arm = "a" }}
arms.baseline = {{}}
arms.same.set = {{ "drawn.arm" = "b" }}
inference = {{ choice = "{choice}" }}
tuning = {{ seeds = {tuning}, select = "loss", grid = {{ "drawn.rate" = {rates} }} }}
"""


def study(cell: tuple[str, int, str, str, int]) -> tuple[str, float | None, int]:
    """Run one study; return its verdict label, p-value and number of seeds."""
    regime, tuning, seeds, choice, number = cell
    home = Path(tempfile.mkdtemp())
    os.environ["PARIBUS_LEDGER"] = str(home / "ledger")
    import numpy as np

    import paribus

    try:
        (home / "drawn.py").write_text(
            TRAINER.format(here=str(Path(__file__).parent.resolve()), regime=regime)
        )
        most = int(seeds) if seeds.isdigit() else 0
        listed = SEEDS[seeds].format(", ".join(map(str, range(1, most + 1))))
        (home / "study.toml").write_text(
            STUDY.format(
                rates=[2.0**place for place in range(7)],
                seeds=listed,
                number=number,
                offset=np.random.default_rng([number, tuning]).uniform(),
                choice=choice,
                tuning=list(range(101, 101 + tuning)),
            )
        )
        results = paribus.run(paribus.load_study(home / "study.toml"), home / "r")
        (verdict,) = paribus.decide(paribus.analyse(results))
        return verdict.word, verdict.p, verdict.n
    finally:
        shutil.rmtree(home)


def main() -> None:
    """Run the missing studies, alternating between settings, and print the table."""
    records = Path(sys.argv[1])
    studies = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    choice = sys.argv[3] if len(sys.argv) > 3 else "with_lack_of_fit"
    found = {}
    if records.exists():
        for line in records.read_text(encoding="utf-8").splitlines():
            *cell, word, p, n = json.loads(line)
            found[tuple(cell)] = word, p, n
    cells = [(r, t, s, choice) for r in REGIMES for t in (3, 6) for s in SEEDS]
    todo = [(*c, k) for k in range(studies) for c in cells if (*c, k) not in found]
    with (
        ProcessPoolExecutor(2, get_context("spawn")) as pool,
        records.open("a", encoding="utf-8") as file,
    ):
        for cell, result in zip(todo, pool.map(study, todo), strict=True):
            found[cell] = result
            file.write(json.dumps([*cell, *result]) + "\n")
            file.flush()
    for cell in cells:
        print(told(cell, [v for k, v in found.items() if k[:4] == cell]))


def told(cell: tuple[str, int, str, str], found: list[tuple[str, float | None, int]]) -> str:
    """Format the results for one setting as a line of text."""
    from scipy.stats import binomtest

    regime, tuning, seeds, choice = cell
    of = len(found)
    errors = sum(p is not None and p <= 0.05 for _, p, _ in found)
    interval = binomtest(errors, of).proportion_ci()
    words = ", ".join(
        f"{word} {100 * k / of:.1f}" for word, k in Counter(w for w, *_ in found).most_common()
    )
    rate = f"{100 * errors / of:.1f} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"
    return f"{regime}, {tuning} tuning seeds, n = {seeds}, {choice}: {rate} of {of}; {words}"


if __name__ == "__main__":
    main()
