"""The paper: no number that is not in the records, equal bytes, and right with little there."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pytest
import typst
import vl_convert

import paribus
from paribus.analysis import analyse
from paribus.decision import decide, verdict_record
from paribus.report.figures import Figure
from paribus.report.paper import write_paper
from paribus.report.paper.contents import Fact, Material, sections
from paribus.report.paper.typesetting import write_figure
from paribus.results import Results, load_results
from paribus.results.store import root_digest

from ..conftest import Fabricate, Maker, studies_in
from ..fabricated import write_results

SEEDS = [1, 2, 3, 4, 5]
SIDES = ("width", "height")
BIBLIOGRAPHY = Path(paribus.__file__).parent / "report/paper/references.bib"


def loss(arm: str, seed: int) -> float:
    return 2.5 + 0.01 * seed + (arm != "baseline") * (0.05 + 0.003 * (seed * len(arm) % 5))


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    """Of five seeds of the small study, finished; tests here only read its records."""
    folder = tmp_path_factory.mktemp("five")
    study = studies_in(folder)(seeds=SEEDS, question="Does it help?")
    return Material.of(write_results(folder / "made", study, loss))


def written(results: Results) -> bytes:
    analysis = analyse(results)
    return write_paper(results, analysis, decide(analysis)).read_bytes()


def said(material: Material) -> list[str]:
    """All sentences: paragraphs, lines and facts; tables are others' to test."""
    found = []
    for block in (block for part in sections(material) for block in part.blocks):
        if isinstance(block, str):
            found.append(block)
        elif isinstance(block, list):
            found += [one for one in block if isinstance(one, str)]
            found += [one.text for one in block if isinstance(one, Fact)]
    return found


def leaves(value: Any) -> Iterator[float]:
    """Every number of a JSON value: numbers, those inside sentences, and how long lists are."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, (int, float)):
        yield float(value)
    elif isinstance(value, str):
        if not re.fullmatch(r"[0-9a-f]{12,}", value):  # digests are no numbers
            yield from map(float, re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", value.replace(",", "")))
    else:
        yield float(len(value))
        items = value.values() if isinstance(value, dict) else value
        keys = value if isinstance(value, dict) else ()
        for item in (*items, *keys):
            yield from leaves(item)


def known_numbers(material: Material) -> set[float]:
    """What the records hold, with perplexity ratios (exp of a loss) and levels (1 - alpha)."""
    study, analysis = material.study, material.analysis
    records = [
        analysis.to_dict(),
        study.model_dump(mode="json"),
        verdict_record(analysis, material.verdicts),
        *(trial for trial in material.results.trials.values()),
        *(folder.read_json("environment.json") for folder in material.results.finished[:1]),
        [study.trials, study.contrasts],
    ]
    found = {abs(number) for record in records for number in leaves(record)}
    for contrast in analysis.contrasts:
        if contrast.paired and contrast.declared.unit == "nats/token":
            interval = contrast.decided.interval
            found |= {math.exp(x) for x in (contrast.paired.mean, interval.low, interval.high)}
        if contrast.primary and contrast.test and contrast.margin:
            level, power = study.inference.alpha / study.family, study.inference.power
            pairs = contrast.test.pairs_needed(contrast.margin, power=power, alpha=level)
            found |= {float(pairs or 0), 100 * power}
    alpha = study.inference.alpha
    found |= {100 * (1 - alpha), 1 - 2 * alpha, study.setting(study.baseline).tokens}
    states = [control.state for control in analysis.controls]
    found |= {float(states.count(state)) for state in ("held", "declared", "broken")}
    for s in analysis.stabilities:
        both = s.any_event.both
        found |= {float(both + s.any_event.only_baseline), float(both + s.any_event.only_treatment)}
    total = len(study.trials)
    return found | {float(total - len(analysis.missing)), float(total)}


def unknown_numbers(lines: list[str], known: set[float]) -> list[str]:
    """Numbers of the prose that no record rounds to. Names such as H1a and L2 are no numbers."""
    missing = []
    for line in lines:
        text = re.sub(r"\b[0-9a-f]{12,64}\b", "", line.replace(",", ""))
        for token in re.findall(r"(?<![\w.])\d+(?:\.\d+)*(?:e-?\d+)?(?![\w.]*[A-Za-z])", text):
            parts = token.split(".")
            if len(parts) > 2:  # a version
                continue
            digits = len(parts[1]) if len(parts) == 2 and "e" not in token else 0
            value = float(token)
            margin = 0.5000001 * 10.0**-digits if digits else 0.0
            if not any(
                abs(value - number) <= margin or math.isclose(value, number) for number in known
            ):
                missing.append(f"{token} in: {line[:80]}")
    return missing


@pytest.mark.parametrize(
    "options", [{}, {"skip": [("rmsnorm", 5), ("baseline", 4)]}, {"diverged": [("rmsnorm", 1)]}]
)
def test_every_number_stands_in_the_records(
    material: Material, small_study: Maker, fabricate: Fabricate, options: dict[str, Any]
) -> None:
    if options:
        material = Material.of(fabricate(small_study(seeds=SEEDS), loss, **options))
    known = known_numbers(material)
    assert unknown_numbers(said(material), known) == []
    assert unknown_numbers(["A gain of 0.98765 points."], known), "it finds one that is made up"


def test_the_report_has_question_answer_arms_results_and_facts(material: Material) -> None:
    parts = {part.title: part.blocks for part in sections(material)}
    assert parts["Question"] == ["Does it help?"]
    assert str(parts["Answer"][0]).startswith("layernorm is WORSE (+0.05")
    assert {"Arms", "Results", "Stability and cost", "Controls", "Facts"} <= parts.keys()
    facts = {fact.name: fact.text for fact in material.facts}
    assert material.results.root in facts["Root digest"]
    assert material.study.digest in facts["Study digest"]


def test_figures_stand_where_their_numbers_declare(material: Material) -> None:
    def standing(of: Material) -> set[str]:
        parts = {part.title: part.blocks for part in sections(of)}
        return {figure.name for figure in parts["Diagnostics"][0]}

    declared = {
        *("train_loss", "grad_norm", "embedding_norm-all-mean", "embedding_norm-spread"),
        *("residual-norm-depth", "reliability_accuracy-bin", "context_loss-context"),
    }
    assert standing(material) == declared
    other = "temperature_loss-T"
    moved = [replace(one, in_text=one.name == other) for one in material.figures.values()]
    assert standing(replace(material, drawn=moved)) == {other}


def test_every_method_that_is_cited_is_in_the_references(material: Material) -> None:
    keys = set(re.findall(r"@\w+\{(\w+),", BIBLIOGRAPHY.read_text(encoding="utf-8")))
    source = (BIBLIOGRAPHY.parent / "contents.py").read_text(encoding="utf-8")
    assert {key for fact in material.facts for key in fact.cites} <= keys
    assert not [key for key in keys if f'"{key}"' not in source]


def test_equal_records_give_an_equal_pdf_with_all_its_parts(material: Material) -> None:
    results = material.results
    first = written(results)
    assert first.startswith(b"%PDF") and written(load_results(results.path)) == first
    folder = results.path / "paper"
    figures = {path.stem for path in (folder / "figures").glob("*.svg")}
    assert figures == {path.stem for path in (folder / "figures").glob("*.pdf")}
    assert {"forest", "train_loss", "reliability_accuracy-bin"} <= figures
    with (folder / "tables" / "trials.csv").open(encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert len(rows) == 1 + len(results.study.trials)
    assert json.loads((folder / "document.json").read_text("utf-8"))["title"]
    assert 2 <= len(typst.compile(folder / "report.typ", root=folder, format="svg")) <= 6


def test_a_digest_can_be_copied(material: Material) -> None:
    results = material.results
    written(results)
    data = (results.path / "paper" / "document.json").read_text("utf-8")
    for digest in (root_digest(results.path), results.study.digest):
        assert digest in data
        if shutil.which("pdftotext"):
            command = ["pdftotext", results.path / "paper.pdf", "-"]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            assert digest in said


def test_words_of_a_study_are_never_markup(small_study: Maker, fabricate: Fabricate) -> None:
    evil = "#panic() $x$ *b* @LeScao2022 <label> \\ [a] // c"
    study = small_study(
        title=evil,
        question=evil,
        arms={
            "baseline": {},
            "#panic()": {"title": evil, "set": {"model.embedding.norm": "layernorm"}},
        },
    )
    results = fabricate(study, loss)
    assert written(results).startswith(b"%PDF")
    assert evil in json.loads((results.path / "paper" / "document.json").read_text())["title"]


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing comparable": ({}, {"skip": [("baseline", 1), ("baseline", 2)]}),
    "one arm": ({"arms": {"baseline": {}}}, {}),
    "one seed": ({"seeds": [1]}, {}),
    "no probes": ({}, {"probes": []}),
    "long names": (
        {
            "name": "n" * 80,
            "arms": {"baseline": {}, "x" * 80: {"set": {"model.embedding.norm": "layernorm"}}},
        },
        {},
    ),
    "other scripts": (
        {
            "arms": {
                "baseline": {},
                "обычный": {"set": {"model.embedding.norm": "layernorm"}},
                "基準": {"set": {"model.embedding.norm": "rmsnorm"}},
                "الأساس": {"set": {"model.embedding.norm": "center"}},
            }
        },
        {},
    ),
}


QUICK = "nothing comparable", "other scripts"


@pytest.mark.parametrize(
    "case", [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow) for one in CASES]
)
def test_little_or_strange_records(small_study: Maker, fabricate: Fabricate, case: str) -> None:
    tables, options = CASES[case]
    assert written(fabricate(small_study(**tables), loss, **options)).startswith(b"%PDF")


@pytest.mark.slow
def test_all_diverged(small_study: Maker, fabricate: Fabricate) -> None:
    study = small_study(seeds=SEEDS)
    results = fabricate(
        study,
        lambda arm, seed: math.nan,
        curve=lambda arm, seed: np.full(8, np.nan),
        diverged=study.trials,
    )
    text = " ".join(said(Material.of(results)))
    assert "nan" not in text.lower().split()
    assert "diverged" in text
    assert written(results).startswith(b"%PDF")


def test_no_figure_can_end_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vl-convert aborts at what XML forbids: it is drawn with a stand-in, whoever named it so."""
    evil = "".join(map(chr, [*range(0x20), 0xD800, 0xFFFE, 0xFFFF]))
    rows = [{"arm": evil, "value": 1.0}]
    chart = alt.Chart(alt.NamedData("evil")).mark_bar()
    chart = chart.encode(alt.X("arm:N", title=evil), alt.Y("value:Q"))
    seen = []
    real = vl_convert.vegalite_to_svg

    def careful(definition: str) -> str:
        strings = set(json.dumps(json.loads(definition), ensure_ascii=False).lower())
        assert not strings & {"\ud800", "\ufffe", "\uffff"}
        assert not re.search(r"\\u00(0[0-8bcef]|1[0-9a-f])|\\[bfnrt]", definition)
        seen.append(definition)
        return real(definition)

    monkeypatch.setattr("paribus.report.paper.typesetting.vl_convert.vegalite_to_svg", careful)
    figure = Figure("evil", "endpoints", evil, evil, chart, rows, stretch=False)
    drawn = write_figure(tmp_path / "evil", figure, 380, False)
    assert 0 < drawn.share <= 1
    assert len(seen) == 1 and (tmp_path / "evil.svg").stat().st_size > 500


def test_a_tall_figure_is_no_taller_than_a_page(tmp_path: Path) -> None:
    chart = alt.Chart(alt.NamedData("tall")).mark_bar().properties(height=1600)
    chart = chart.encode(alt.X("arm:N"), alt.Y("value:Q"))
    rows = [{"arm": "a", "value": 1.0}]
    figure = Figure("tall", "endpoints", "tall", "tall", chart, rows, stretch=False, wide=True)
    drawn = write_figure(tmp_path / "tall", figure, 720, False)
    svg = (tmp_path / "tall.svg").read_text()
    across, down = (float(re.findall(rf' {side}="([0-9.]+)"', svg)[0]) for side in SIDES)
    wide, high = 210 - 2 * 16, 297 - 17 - 19  # millimetres of A4 within the template's margins
    assert drawn.height == pytest.approx(down / across)
    assert 0.9 * high > drawn.share * wide * drawn.height > 0.8 * high
