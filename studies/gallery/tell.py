"""The table and the picture of the gallery, from the studies that are kept here.

    python studies/gallery/tell.py

writes both between the marks of docs/explanation/gallery.md, and gallery.svg beside it. A line is a
treatment: its word and change with the interval of the verdict, what it costs beside, and how far
it depends on the rate. Each opens the README.md of its study, which is written too.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt
import vl_convert

import paribus
from paribus import load_results
from paribus.files import write_bytes
from paribus.report.figures.style import ARM_COLOURS
from paribus.report.model import build_report
from paribus.report.render import card_markdown
from paribus.results import Results, ResultsFolder
from paribus.results.formats import read_json
from paribus.study import open_edges

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/explanation/gallery.md"
ANSWER = "<!-- answer: written by tell.py -->\n", "<!-- end of answer -->"
TABLE = "<!-- verdicts: written by tell.py -->\n", "<!-- end of verdicts -->"
HEAD = (
    "| arm | word | change of loss | at equal settings | tokens to equal loss | speed | memory |\n"
)
SHARED = "tying", "tied"  # whose trials other studies have as their baseline
# What readers call the arms of a study, where their names alone do not say it.
CALLED = {
    "batch-ramp": {
        "linear": "batches that grow in a line",
        "doubling": "batches that double",
        "constant": "constant ones",
    },
    "experts": {"experts": "four experts", "mlp": "one MLP"},
    "mlp": {"swiglu": "SwiGLU", "relu2": "squared ReLU", "gelu": "GELU"},
    "norm-placement": {"post": "post-norm", "pre": "pre-norm"},
    "optimizers": {
        "muon": "Muon",
        "soap": "SOAP",
        "lion": "Lion",
        "schedule-free": "schedule-free AdamW",
        "adamw": "AdamW",
    },
    "positions": {"rotary": "rotary positions", "none": "no positions", "learned": "learned ones"},
    "qk-norm": {"qk-norm": "QK-norm", "plain": "none"},
    "schedules": {"wsd": "warmup-stable-decay", "cosine": "a cosine"},
    "tokens": {"pairs": "512 byte pairs"},
    "tying": {"untied": "untied embeddings", "tied": "tied ones"},
    "value-residual": {"residual": "value residuals", "plain": "none"},
    "z-loss": {"plain": "none"},
}
TICKS = [-0.3, -0.1, -0.02, 0, 0.02, 0.1, 0.3]
COLOURS = {"BETTER": ARM_COLOURS[0], "WORSE": ARM_COLOURS[1]}
OTHERS = dict.fromkeys(("SAME", "UNRESOLVED", "DESCRIPTIVE", "INVALID"), "#777777")


class Row(NamedTuple):
    """A treatment.

    `shared` is (least, largest) change at one rate and warmup for both arms; `sooner`, of how many
    times fewer tokens it needs, and `speed` are (mean, low, high). `at_edge` where the best rate or
    warmup of one of both is at an end of the range that was tried.
    """

    study: str
    reference: str
    arm: str
    word: str
    unit: str
    margin: float
    change: tuple[float, float, float]
    shared: list[float]
    sooner: list[float] | None
    speed: list[float] | None
    at_edge: bool
    memory: float

    @property
    def nats(self) -> float:
        """The change in nats, of a byte where it is of bits; a character is a byte here."""
        return self.change[0] * (math.log(2) if self.unit == "bits/byte" else 1)

    @property
    def called(self) -> tuple[str, str]:
        """The arm and what it is compared with, in readers' words."""
        words = CALLED.get(self.study, {})
        return words.get(self.arm, self.arm), words.get(self.reference, self.reference)


def kept() -> list[Path]:
    """Return the studies that are kept here."""
    return sorted(file.parent for file in HERE.glob("*/registration.json"))


def rows_of(study: Path) -> list[Row]:
    """Return the treatments of a kept study."""
    analysed = paribus.analyse(load_results(study))
    analysis, tuned = analysed.to_dict(), analysed.tuned
    verdict = read_json(study / "verdict.json")
    costs = {one["arm"]: one for one in analysis["costs"]}
    along = {one["arm"]: one["speedup"] for one in analysis["along"] if one["axis"] == "tokens"}
    units = {name: one["unit"] for name, one in analysis["metrics"].items()}
    arms = analysed.study.arms if tuned else ()
    at_edge = {
        arm for arm in arms if open_edges(tuned.candidates, tuned.values_of(tuned.best(arm)))
    }
    rows = []
    for one in verdict["verdicts"]:
        arm, reference = one["arm"], one["reference"]
        found = along.get(arm)
        ends = found and (found["mean"], found["interval"]["low"], found["interval"]["high"])
        sooner = list(map(math.exp, ends)) if ends else None
        rows.append(
            Row(
                *(study.name, reference, arm, one["word"], units[one["metric"]]),
                margin=one["margin"],
                change=(one["effect"], one["low"], one["high"]),
                shared=[change for _, change in tuned.extremes(arm, reference)] if tuned else [],
                sooner=sooner,
                speed=faster(costs[arm]["throughput"]),
                at_edge=bool({arm, reference} & at_edge),
                memory=1 + costs[arm]["more_memory"],
            )
        )
    return rows


def faster(lost: dict[str, Any] | None) -> list[float] | None:
    """Return the ratio of tokens a second, with its interval, from the share that is lost."""
    if not lost or lost["mean"] is None:
        return None
    ends = lost["interval"]
    return [1 - share for share in (lost["mean"], ends["high"], ends["low"])]


def with_ends(ratio: list[float] | None) -> str:
    """Return `0.95 [0.89, 1.02]`."""
    return "{:.2f} [{:.2f}, {:.2f}]".format(*ratio) if ratio else "-"


def readme(study: Path) -> str:
    """Return what opens with the folder of a kept study: its card, and how to have its page."""
    results = load_results(study)
    analysis = paribus.analyse(results)
    told = card_markdown(build_report(paribus.decide(analysis))).replace("### ", "# ", 1)
    baseline = results.study.baseline
    is_shared = study.name != SHARED[0] and weights(results, baseline) == weights_shared()
    name, copied = study.relative_to(HERE.parents[1]), ""
    if is_shared:
        copied = f"The trials of {baseline} were trained by `{SHARED[0]}` and copied here.\n\n"
    return (
        f"{told.rstrip()}\n\n{copied}`paribus verify {name}` checks these records; "
        f"`paribus report {name}` writes the whole page.\n"
    )


def weights(results: Results, arm: str) -> str:
    """Return the digest of the weights of an arm's first seed."""
    folder = ResultsFolder(results.path).trial(arm, results.study.seeds[0])
    return folder.read_json("manifest.json")["weights.safetensors"]


@cache
def weights_shared() -> str:
    """Return the same of the arm that is trained once for several studies."""
    study, arm = SHARED
    return weights(load_results(HERE / study), arm)


def table(rows: list[Row]) -> str:
    """Return the lines of Markdown."""
    lines = [HEAD, "| --- " * 7 + "|\n"]
    for one in rows:
        mean, low, high = one.change
        arm, reference = one.called
        unit = "" if one.unit == "nats/token" else f" {one.unit}"
        edge = " (edge)" if one.at_edge else ""
        shared = "{:+.2f} to {:+.2f}".format(*one.shared) if one.shared else "-"
        lines.append(
            f"| [{arm}](../../studies/gallery/{one.study}) against {reference} | "
            f"{one.word} | "
            f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]{unit}{edge} | {shared} | "
            f"{with_ends(one.sooner)} | {with_ends(one.speed)} | {one.memory:.2f} |\n"
        )
    return "".join(lines)


def picture(rows: list[Row]) -> str:
    """Return every change with its interval, as SVG."""
    names = [" against ".join(one.called) for one in rows]
    data = [
        {
            "name": name,
            "word": one.word,
            **dict(zip(("mean", "low", "high"), one.change, strict=True)),
        }
        for name, one in zip(names, rows, strict=True)
    ]
    words = list(dict.fromkeys(one.word for one in rows))
    scale = alt.Scale(domain=words, range=[(COLOURS | OTHERS)[word] for word in words])
    base = alt.Chart(alt.Data(values=data)).encode(
        alt.Y("name:N", sort=names, title=None, axis=alt.Axis(labelLimit=300)),
        alt.Color("word:N", scale=scale, title=None),
    )
    title = "change of test loss (nats/token; log scale beyond the band)"
    ends = [end for one in rows for end in one.change]
    # Even within the margin, by the logarithm beyond it: changes span two orders of magnitude.
    x = alt.X(
        "low:Q",
        title=title,
        scale=alt.Scale(
            type="symlog",
            constant=rows[0].margin,
            domain=[min(*ends, -0.05) * 1.3, max(*ends, 0.05) * 1.3],
        ),
        axis=alt.Axis(values=TICKS, labelExpr="datum.value ? format(datum.value, '+~g') : '0'"),
    )
    band = (
        alt.Chart(alt.Data(values=[{"low": -rows[0].margin, "high": rows[0].margin}]))
        .mark_rect(opacity=0.12, color="#666")
        .encode(x, alt.X2("high:Q"))
    )
    bars = base.mark_rule(strokeWidth=2).encode(x, alt.X2("high:Q"))
    points = base.mark_point(filled=True, size=60, opacity=1).encode(
        alt.X("mean:Q"), alt.Shape("word:N", scale=alt.Scale(domain=words), title=None)
    )
    zero = alt.Chart(alt.Data(values=[{"x": 0}])).mark_rule(strokeDash=[3, 3]).encode(x="x:Q")
    chart = (band + zero + bars + points).properties(
        width=430, height=24 * len(rows), background="white"
    )
    return vl_convert.vegalite_to_svg(chart.configure_legend(orient="top").to_dict())


def answer(rows: list[Row]) -> str:
    """Return the arms by their word, what helps first."""
    by_word = {word: [one for one in rows if one.word == word] for word in COLOURS | OTHERS}
    words = [f"**{word}**: {', '.join(map(named, arms))}" for word, arms in by_word.items() if arms]
    return f"{'; '.join(words)}.\n"


def named(one: Row) -> str:
    """Return `post-norm against pre-norm (edge)`."""
    return f"{' against '.join(one.called)}{' (edge)' if one.at_edge else ''}"


def told(page: str, rows: list[Row]) -> str:
    """Return the page with the answer and the table between their marks."""
    for (begin, end), text in ((ANSWER, answer(rows)), (TABLE, table(rows))):
        before, _, rest = page.partition(begin)
        page = before + begin + text + end + rest.partition(end)[2]
    return page


def main() -> None:
    """Write the table, the picture, and what opens with each study."""
    for study in kept():
        write_bytes(study / "README.md", readme(study).encode())
    rows = sorted((row for study in kept() for row in rows_of(study)), key=lambda one: one.nats)
    write_bytes(PAGE, told(PAGE.read_text("utf-8"), rows).encode())
    in_nats = [one for one in rows if one.unit == "nats/token"]
    write_bytes(PAGE.with_suffix(".svg"), picture(in_nats).encode())


if __name__ == "__main__":
    main()
