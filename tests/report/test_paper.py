"""The paper: no number that is not in the records, equal bytes, and right with little there."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import altair as alt
import numpy as np
import pytest
import vl_convert
from paribus.cli.printed_tables import comparison
from rich.console import Console

from paribus.analysis import analyse
from paribus.decision import decide, verdict_record
from paribus.report import draw, write_paper
from paribus.report.figures import Figure
from paribus.report.paper import Material, compose, typesetting
from paribus.report.paper.document import (
    Cite,
    Document,
    Grid,
    Listing,
    Paragraph,
    Picture,
    say,
    typeset,
)
from paribus.report.paper.glyphs import lacking, spelled
from paribus.report.paper.typesetting import FULL_ENOUGH, typeset_paper
from paribus.report.paper.write import _write_figure
from paribus.report.tables import Table
from paribus.report.tables import claims as claims_table
from paribus.results import Results, load_results
from paribus.results.store import root_digest
from paribus.study import Study

from ..conftest import studies_in
from ..fabricated import write_results

Maker, Fabricate = Callable[..., Study], Callable[..., Results]
SEEDS = [1, 2, 3, 4, 5]
SIDES = ("width", "height")
BIBLIOGRAPHY = Path("src/paribus/report/paper/references.bib")

ENDPOINTS = [
    {"metric": "validation_loss", "primary": True, "margin": 0.02, "smallest_effect": 0.02},
    *({"metric": name} for name in ("validation_perplexity", "validation_accuracy")),
    *({"metric": name} for name in ("calibration_error", "brier_score", "macro_accuracy")),
    *({"metric": name} for name in ("grad_norm", "embedding_norm")),
]


def loss(arm: str, seed: int) -> float:
    return 2.5 + 0.01 * seed + (arm != "baseline") * (0.05 + 0.003 * (seed * len(arm) % 5))


def material_of(results: Results) -> Material:
    analysis = analyse(results)
    return Material(results, analysis, decide(analysis), draw(results, analysis))


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    """Of five seeds of the small study, finished; tests here only read its records."""
    folder = tmp_path_factory.mktemp("five")
    study = studies_in(folder)(seeds=SEEDS, question="Does it help?", endpoints=ENDPOINTS)
    return material_of(write_results(folder / "made", study, loss))


def written(results: Results) -> bytes:
    """The paper in the first layout that is tried: twenty of a short one cost a second."""
    analysis = analyse(results)
    with (
        patch.object(typesetting, "LEADINGS", typesetting.LEADINGS[:1]),
        patch.object(typesetting, "REFERENCES", typesetting.REFERENCES[:1]),
    ):
        return write_paper(results, analysis, decide(analysis)).read_bytes()


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
        verdict_record(material.study, material.verdicts),
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


def unknown_numbers(document: Document, known: set[float]) -> list[str]:
    """Numbers of the prose that no record rounds to. Names such as H1a and L2 are no numbers."""
    missing = []
    for paragraph in document.paragraphs:
        text = re.sub(r"\b[0-9a-f]{12,64}\b", "", paragraph.text.replace(",", ""))
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
                missing.append(f"{token} in: {paragraph.text[:80]}")
    return missing


@pytest.mark.parametrize(
    "options", [{}, {"skip": [("rmsnorm", 5), ("baseline", 4)]}, {"diverged": [("rmsnorm", 1)]}]
)
def test_every_number_stands_in_the_records(
    material: Material, small_study: Maker, fabricate: Fabricate, options: dict[str, Any]
) -> None:
    if options:
        material = material_of(fabricate(small_study(seeds=SEEDS), loss, **options))
    document = compose(material)
    known = known_numbers(material)
    assert unknown_numbers(document, known) == []
    invented = Document("", "", [Paragraph(("A gain of 0.98765 points.",))], [], [])
    assert unknown_numbers(invented, known) != [], "the check finds a number that is made up"


def test_abstract_and_recommendation_have_the_verdict(material: Material) -> None:
    document = compose(material)
    assert "Does it help?" in document.abstract[0].text
    assert "Keep the baseline" in document.abstract[0].text
    parts = {part.title: part for part in document.parts}
    advice = parts["Recommendation"].blocks[0]
    assert isinstance(advice, Paragraph) and advice.text.startswith(
        "Keep the baseline at this learning rate (3e-4, not tuned): "
    )
    assert [part.title for part in document.parts] == [
        *("Introduction", "Related work", "Method", "Results", "Analysis"),
        *("Limits", "Recommendation", "What larger scale would have to show", "Reproducibility"),
    ]


def test_related_work_is_about_the_study_and_has_no_numbers(
    material: Material, small_study: Maker, fabricate: Fabricate
) -> None:
    def related(material: Material) -> tuple[str, set[str]]:
        part = next(part for part in compose(material).parts if part.title == "Related work")
        blocks = [block for block in part.blocks if isinstance(block, Paragraph)]
        runs = [run for block in blocks for run in block.runs]
        text = " ".join(block.text for block in blocks)
        return text, {run.key for run in runs if isinstance(run, Cite)}

    text, cited = related(material)
    assert "LeScao2022" in cited
    assert not re.search(r"\d", text.replace("bfloat16", ""))
    arms = {"baseline": {}, "hot": {"set": {"training.optimizer.learning_rate": 0.002}}}
    text, cited = related(material_of(fabricate(small_study(seeds=SEEDS, arms=arms), loss)))
    assert "LeScao2022" not in cited and "Narang2021" in cited


def test_every_citation_has_its_entry_and_none_is_idle(
    small_study: Maker, fabricate: Fabricate
) -> None:
    entries = BIBLIOGRAPHY.read_text(encoding="utf-8")
    keys = set(re.findall(r"@\w+\{(\w+),", entries))
    sources = "".join(p.read_text("utf-8") for p in BIBLIOGRAPHY.parent.glob("*.py"))
    assert keys == set(re.findall(r'Cite\("(\w+)"\)', sources))
    for field in ("title", "author", "year", "eprint"):
        assert len(re.findall(rf"^  {field} = ", entries, re.MULTILINE)) == len(keys)


def test_what_was_recorded_while_training_is_told_by_its_declaration(material: Material) -> None:
    """Of any endpoint, the user's own too: no list of names says which."""
    analysis = next(part for part in compose(material).parts if part.title == "Analysis")
    secondary = [e.metric for e in material.study.endpoints if not e.primary]
    metrics = {name: material.analysis.metrics[name] for name in secondary}
    recorded = {m for m in metrics.values() if m.record in ("steps", "probes")}
    assert recorded
    for metric in recorded:
        assert f"At the last step that has it, {metric.label}" in str(analysis)


def test_figures_stand_where_their_numbers_declare(material: Material) -> None:
    def standing(of: Material) -> dict[str, set[str]]:
        document = compose(of)
        return {
            part.title: {block.name for block in part.blocks if isinstance(block, Picture)}
            for part in (*document.parts, *document.appendix)
        }

    declared = {
        *("train_loss", "grad_norm", "embedding_norm-all-mean", "embedding_norm-spread"),
        *("residual-norm-depth", "reliability_accuracy-bin", "context_loss-context"),
    }
    assert {figure.name for figure in material.figures if figure.in_text} == declared
    found = standing(material)
    assert found["Analysis"] == declared and not declared & found["Further figures"]
    other = "temperature_loss-T"
    assert other in found["Further figures"]
    moved = [replace(one, in_text=one.name == other) for one in material.figures]
    found = standing(replace(material, figures=moved))
    assert found["Analysis"] == {other} and declared <= found["Further figures"]


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


def test_references_leave_no_page_nearly_empty(material: Material, tmp_path: Path) -> None:
    """The appendix begins on a new page: what fills the one before is found by trying."""
    written(material.results)
    folder = material.results.path / "paper"
    found = typeset_paper(folder, system=False)
    assert found.filled >= FULL_ENOUGH
    assert 2 < found.text_pages < 9


def test_nothing_that_floats_runs_over_a_margin(material: Material, tmp_path: Path) -> None:
    """Typst gave a long table the room that a wide one had left, and dropped its other rows."""
    written(material.results)
    folder = tmp_path / "paper"
    shutil.copytree(material.results.path / "paper", folder)
    data = json.loads((folder / "document.json").read_text("utf-8")) | {"appendix": []}

    def table(name: str, n: int, wide: bool) -> dict[str, Any]:
        rows = tuple((str(row), "of-it") for row in range(n))
        return Grid(Table(name, name, ("row", "what"), rows, wide=wide)).to_dict()

    for wide, long, fits in ((4, 10, True), (40, 30, True), (4, 120, False)):
        words = say("Words. " * 150).to_dict()
        blocks = [words, table("wide", wide, True), words, table("long", long, False), words]
        data["parts"] = [{"title": "All", "level": 1, "blocks": blocks}]
        (folder / "document.json").write_text(json.dumps(data))
        paper = typeset_paper(folder, system=False)
        assert paper.is_whole == fits
        if shutil.which("pdftotext") and fits:
            command = ["pdftotext", "-", "-"]
            text = subprocess.run(command, input=paper.pdf, capture_output=True, check=True).stdout
            assert text.count(b"of-it") == wide + long


def test_the_appendix_has_the_keys_that_somebody_set(material: Material) -> None:
    part = next(part for part in compose(material).appendix if part.title == "The study as run")
    listing = next(block for block in part.blocks if isinstance(block, Listing))
    stated = dict(listing.items)
    assert stated["model.d_model"] == "16" and stated["arms.rmsnorm.set.model.embedding.norm"]
    assert "training.optimizer.eps" not in stated, "it is at its default"
    set_in = [item for column in listing.to_dict()["columns"] for item in column]
    assert set_in == [[typeset(key), typeset(value)] for key, value in listing.items]


def test_a_digest_can_be_copied(material: Material) -> None:
    """No character stands in it that only breaks a line; nor is the line broken."""
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


@pytest.mark.parametrize("case", CASES)
def test_little_or_strange_records(small_study: Maker, fabricate: Fabricate, case: str) -> None:
    tables, options = CASES[case]
    assert written(fabricate(small_study(**tables), loss, **options)).startswith(b"%PDF")


def test_all_diverged(small_study: Maker, fabricate: Fabricate) -> None:
    study = small_study(seeds=SEEDS)
    results = fabricate(
        study,
        lambda arm, seed: math.nan,
        curve=lambda arm, seed: np.full(8, np.nan),
        diverged=study.trials,
    )
    text = " ".join(p.text for p in compose(material_of(results)).paragraphs)
    assert "nan" not in text.lower().split()
    assert "diverged" in text
    assert written(results).startswith(b"%PDF")


def test_what_no_font_has_is_spelled() -> None:
    assert lacking("aж✓", system=False) == set()
    missing = lacking("基a", system=False)
    assert missing == {"基"}
    assert spelled("a基", missing) == "a[U+57FA]"


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

    monkeypatch.setattr("paribus.report.paper.write.vl_convert.vegalite_to_svg", careful)
    figure = Figure("evil", "endpoints", evil, evil, chart, rows, stretch=False)
    drawn = _write_figure(tmp_path, figure, set(), Picture("evil", ""), system=False)
    assert 0 < drawn.share <= 1
    assert len(seen) == 1 and (tmp_path / "figures" / "evil.svg").stat().st_size > 500


def test_a_tall_figure_is_no_taller_than_a_page(tmp_path: Path) -> None:
    """Of two dozen panels of tasks the first row and the last were cut off."""
    chart = alt.Chart(alt.NamedData("tall")).mark_bar().properties(height=1600)
    chart = chart.encode(alt.X("arm:N"), alt.Y("value:Q"))
    rows = [{"arm": "a", "value": 1.0}]
    figure = Figure("tall", "endpoints", "tall", "tall", chart, rows, stretch=False, wide=True)
    picture = Picture("tall", "", wide=True)
    drawn = _write_figure(tmp_path, figure, set(), picture, system=False)
    svg = (tmp_path / "figures" / "tall.svg").read_text()
    across, down = (float(re.findall(rf' {side}="([0-9.]+)"', svg)[0]) for side in SIDES)
    wide, high = 210 - 2 * 16, 297 - 19 - 20  # millimetres of A4 within the template's margins
    assert drawn.height == pytest.approx(down / across)
    assert 0.9 * high > drawn.share * wide * drawn.height > 0.8 * high


def test_a_claim_on_what_is_no_endpoint_is_shown_with_what_was_measured(
    small_study: Maker, fabricate: Fabricate
) -> None:
    endpoints = [{"metric": "validation_loss", "primary": True, "margin": 0.02}]
    claims = {
        "source": "somebody",
        "values": [{"arms": ["baseline"], "metric": "validation_perplexity", "mean": 9.0}],
    }
    results = fabricate(small_study(endpoints=endpoints, claims=claims), loss)
    analysis = analyse(results)
    table = claims_table(analysis)
    assert table is not None
    measured = np.mean([math.exp(loss("baseline", seed)) for seed in (1, 2)])
    (row,) = table.rows
    assert row[0] == "validation perplexity" and row[3].startswith(f"{measured:.2f} (")
    console = Console(width=80, file=io.StringIO())
    for part in comparison(analysis):
        console.print(part)
    assert f"{measured:.2f}" in console.file.getvalue()  # type: ignore[attr-defined]
