"""The page on embedding norms says what the records of the kept studies say."""

from __future__ import annotations

import json
import re

import pytest

from paribus.results.keeping import read_analysis

from .scripts import HOME

pytestmark = pytest.mark.skipif(not HOME.exists(), reason="needs a checkout")
ARMS = ("baseline", "layernorm", "rmsnorm")
COLUMNS = ("", "-unit", "-4-unit")
ROWS = {
    "validation perplexity": ("validation_perplexity", 1),
    "next-token accuracy": ("validation_accuracy", 3),
    "gradient norm, final": ("grad_norm", 2),
    "embedding norm at block 1": ("embedding_norm", 2),
}
# By embeddings and iterations, the study of each arm.
EFFECTS = {
    ("tied", "300"): ("embedding-norm-tuned", "embedding-norm-tuned", "embedding-norm-mechanism"),
    ("tied", "1,500"): (
        "embedding-norm-retuned-long",
        "embedding-norm-retuned-long",
        "embedding-norm-scale-long",
    ),
    ("untied", "1,500"): ("embedding-norm-untied-long",) * 3,
}


FACTORIAL = {  # of which cell, as its arms are called
    ("tied", "warmup"): "-warm",
    ("tied", "no warmup"): "",
    ("untied", "warmup"): "-untied-warm",
    ("untied", "no warmup"): "-untied",
}


def cells() -> dict[tuple[str, ...], list[str]]:
    """The rows of all tables of the page, by their first cell and by their first two."""
    page = (HOME.parent / "docs" / "explanation" / "embedding-norm.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()]
    return {key: row for row in rows if row for key in ((row[0],), tuple(row[:2]))}


def analysis(name: str) -> dict:
    return json.loads((HOME / name / "analysis.json").read_text())


def test_the_pilot_is_told_as_it_was_measured() -> None:
    found = analysis("embedding-norm-pilot")
    means = {(one["arm"], one["metric"]): one["mean"] for one in found["summaries"]}
    told = cells()
    claims = json.loads((HOME / "embedding-norm-pilot" / "study.json").read_text())["claims"]
    for row, (metric, digits) in ROWS.items():
        claimed = [one["mean"] for one in claims["values"] if one["metric"] == metric]
        assert [float(x) for x in told[row,][1].split(" / ")] == claimed
        for column, suffix in zip(told[row,][2:], COLUMNS, strict=True):
            here = [f"{means[arm + suffix, metric]:.{digits}f}" for arm in ARMS]
            assert column == " / ".join(here), (row, suffix)


@pytest.mark.parametrize("row", EFFECTS, ids="-".join)
def test_effects_are_those_of_the_verdicts(row: tuple[str, str]) -> None:
    names = ("layernorm", "rmsnorm", "fixed-scale")
    for cell, study, arm in zip(cells()[row][2:], EFFECTS[row], names, strict=True):
        (one,) = (
            one
            for one in analysis(study)["contrasts"]
            if (one["arm"], one["metric"]) == (arm, "validation_loss")
        )
        says = one["decided"]
        numbers = [says["mean"], says["interval"]["low"], says["interval"]["high"]]
        told = [float(x) for x in re.findall(r"[-+][0-9.]+", cell)]
        assert told == pytest.approx(numbers, abs=0.000501), (study, arm)


@pytest.mark.parametrize("row", FACTORIAL, ids="-".join)
def test_the_factorial_is_told_as_it_was_decided(row: tuple[str, str]) -> None:
    found = read_analysis(HOME / "embedding-factorial")["contrasts"]
    decided = {one["arm"]: one["decided"] for one in found if one["metric"] == "validation_loss"}
    arms = ("layernorm", "rmsnorm", "factor", "steps")
    for cell, arm in zip(cells()[row][2:], arms, strict=True):
        one = decided[arm + FACTORIAL[row]]
        low, high = one["interval"]["low"], one["interval"]["high"]
        assert cell == f"{one['mean']:+.3f} [{low:+.3f}, {high:+.3f}]"
