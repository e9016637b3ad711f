"""What eight studies look like on each surface; `--snapshot-update` writes the files anew."""

import html
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from paribus.analysis import analyse
from paribus.cli import main
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
    "embedding-larger-cpu",  # tuning on the text that judges
    "gallery/optimizers",  # every arm better or worse, slowdowns, a sealed text
    "one-arm",
    "diverged",
    "interactions",
    "same",  # a rule with a benefit, which is absent
    "unfinished",
    "judged",  # finished runs, of which some lack a partner
)
SEEDS = [1, 2, 3, 4, 5, 6]
NORM, UNTIED = {"model.embedding.norm": "layernorm"}, {"model.head.tied": False}
HOT = {"set": {"training.optimizer.learning_rate": 0.5}}
FACTORIAL = {
    "norm": {"set": NORM},
    "untied": {"set": UNTIED, "reference": "untied"},
    "untied-norm": {"set": NORM | UNTIED, "reference": "untied"},
}
MADE: dict[str, Any] = {
    "one-arm": {},
    "diverged": {"hot": HOT},
    "interactions": FACTORIAL,
    "same": {"norm": {"set": NORM, "title": "LayerNorm, at the start"}},
    "unfinished": {"norm": {"set": NORM}},
}


def made(name: str, small_study: Maker, fabricate: Fabricate) -> Results:
    more = {}
    if name == "interactions":
        more["interactions"] = {"by-output": {"of": ["untied-norm"], "than": ["norm"]}}
    if name == "same":
        loss = {"metric": "validation_loss", "primary": True, "margin": 0.05}
        more["endpoints"] = [loss, {"metric": "calibration_error"}]
        more["decision"] = {"rule": "non_inferiority", "benefit": "calibration_error"}
    study = small_study(arms={"baseline": {}} | MADE[name], seeds=SEEDS, **more)

    def score(arm: str, seed: int) -> float:
        if arm == "hot":
            return math.nan
        return 2.5 + seed / 100 + len(arm) * (seed % 3 - 6) / 900

    skip = {("norm", 5), ("norm", 6)} if name == "unfinished" else set()
    return fabricate(study, score, skip=skip, diverged={("hot", seed) for seed in SEEDS})


def judged(folder: Path) -> Results:
    """Judge a table of runs; two runs of the arm lack a partner."""
    rows = [
        f"{arm},{s},{2.5 + math.sin(s) / 40 - wide / (50 + s):.6f},{math.cos(s) / 9 - wide / 9:.6f}"
        for arm, wide in (("base", 0), ("wide", 1))
        for s in range(6 + 2 * wide)
    ]
    (folder / "runs.csv").write_text("\n".join(["arm,seed,loss,accuracy", *rows, ""]))
    scores = ["--score", "loss", "--score", "accuracy", "--pair", "seed", "--baseline", "base"]
    assert main(["judge", str(folder / "runs.csv"), *scores, "--results", str(folder / "r")]) == 0
    return load_results(folder / "r")


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
def test_surfaces_are_those_of_the_snapshots(
    name, small_study, fabricate, request, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    if name in MADE:
        results = made(name, small_study, fabricate)
    elif name == "judged":
        results = judged(Path())
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
