"""What eight studies look like on each surface; `--snapshot-update` writes the files anew."""

import html
import io
import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from paribus.analysis import analyse
from paribus.cli.options import THEME
from paribus.decision import Verdicts, decide
from paribus.report.model import build_report
from paribus.report.page import render
from paribus.report.pdf import _document
from paribus.report.render import card_markdown, card_text
from paribus.results import Results, load_results

from ..conftest import Fabricate, Maker

KEPT = Path(__file__).parents[2] / "studies"
SNAPSHOTS = Path(__file__).parent / "snapshots"
STUDIES = (
    "embedding-norm",  # an own rule, two endpoints, hypotheses
    "embedding-norm-edge",  # runs that diverged
    "embedding-norm-pilot",  # described only
    "embedding-accuracy",  # answered items
    "embedding-factorial-long",  # tuning, interactions, a sealed text, twenty arms
    "gallery/optimizers",  # every arm better or worse, slowdowns
    "one-arm",
    "diverged",
)
SEEDS = [1, 2, 3, 4, 5, 6]


def one_arm(small_study: Maker, fabricate: Fabricate) -> Results:
    study = small_study(arms={"baseline": {}}, seeds=SEEDS)
    return fabricate(study, lambda arm, seed: 2.5 + seed / 100)


def diverged(small_study: Maker, fabricate: Fabricate) -> Results:
    arms = {"baseline": {}, "hot": {"set": {"training.optimizer.learning_rate": 0.5}}}
    study = small_study(arms=arms, seeds=SEEDS)
    lost = {("hot", seed) for seed in SEEDS}
    score: Callable[[str, int], float] = lambda arm, seed: (  # noqa: E731
        math.nan if arm == "hot" else 2.5 + seed / 100
    )
    return fabricate(study, score, diverged=lost)


def terminal(verdicts: Verdicts) -> str:
    """Return the card as a terminal of 80 columns prints it."""
    out = io.StringIO()
    console = Console(file=out, width=80, theme=THEME, highlight=False)
    console.print(card_text(build_report(verdicts)), soft_wrap=True)
    return out.getvalue()


def first_screen(results: Results, verdicts: Verdicts) -> str:
    """Return the words of the page's first section, a line for each element."""
    page = render(results, verdicts.analysis, verdicts, drawn=[])
    section = page[page.index('<section aria-labelledby="verdict">') :].partition("</section>")[0]
    text = html.unescape(re.sub(r"<[^>]+>", "\n", section))
    return "\n".join(line.strip() for line in text.splitlines() if line.strip()) + "\n"


def printed(results: Results, verdicts: Verdicts) -> str:
    """Return the words on the first page of the PDF."""
    document = _document(results, verdicts.analysis, verdicts, [])
    shown = {key: document[key] for key in ("question", "blocks", "lines", "cautions", "facts")}
    return json.dumps(shown, indent=1, ensure_ascii=False).replace("\u200b", "") + "\n"


@pytest.mark.parametrize("name", STUDIES)
def test_surfaces_are_those_of_the_snapshots(name, small_study, fabricate, request):
    made = {"one-arm": one_arm, "diverged": diverged}
    if name in made:
        results = made[name](small_study, fabricate)
    else:
        results = load_results(KEPT / name).judged
    verdicts = decide(analyse(results))
    surfaces = {
        "card.txt": terminal(verdicts),
        "card.md": card_markdown(build_report(verdicts)),
        "page.txt": first_screen(results, verdicts),
        "pdf.json": printed(results, verdicts),
    }
    assert max(map(len, surfaces["card.txt"].splitlines())) <= 80
    folder = SNAPSHOTS / Path(name).name
    for surface, text in surfaces.items():
        path = folder / surface
        if request.config.getoption("--snapshot-update"):
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"{path}: see --snapshot-update"
