"""One paper of several studies: said once, from the records, in few pages; or refused in a line."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paribus.analysis import analyse
from paribus.cli import main
from paribus.decision import decide
from paribus.errors import ParibusError
from paribus.report.figures import forest
from paribus.report.paper import Material, compose
from paribus.report.paper.advice_rules import KINDS, RULES, Record, advice_on
from paribus.report.paper.document import (
    Cite,
    Document,
    Grid,
    Paragraph,
    Picture,
    Ref,
    say,
)
from paribus.report.paper.judged import RESOLVED, answer_of, judged
from paribus.report.paper.measured_errors import measured_errors
from paribus.report.paper.own_words import OwnWords, read_own_words
from paribus.report.paper.prose import SECTIONS
from paribus.report.paper.said_once import joined, said_once, sentences
from paribus.report.paper.several import _labels
from paribus.report.paper.study_section import chosen_figures, details, study_section
from paribus.results import Results, load_results

from ..conftest import studies_in
from ..fabricated import write_results
from .test_facts import at, other
from .test_paper import known_numbers, unknown_numbers

SEEDS = [1, 2, 3, 4, 5]
EFFECTS = {"worse": 0.3, "better": -0.3, "nothing": 0.0}
NORMS = ("layernorm", "rmsnorm", "center", "fixed_scale")


def made(folder: Path, name: str, effect: float, **tables: Any) -> Results:
    """A study whose arms change the loss by `effect`, and by a little with the seed."""
    study = studies_in(folder)(
        tables.pop("overrides", {}), name=name, title=f"Norms: {name}", seeds=SEEDS, **tables
    )

    def loss(arm: str, seed: int) -> float:
        return 2.5 + 0.01 * seed + (arm != "baseline") * (effect + 0.0005 * (seed * len(arm) % 5))

    return write_results(folder / name, study, loss)


def material_of(results: Results) -> Material:
    analysis = analyse(results)
    return Material(results, analysis, decide(analysis), [])


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three finished studies: one that harms, one that helps, one that takes the norm apart."""
    folder = tmp_path_factory.mktemp("several")
    arms = {"baseline": {}} | {name: {"set": {"model.embedding.norm": name}} for name in NORMS}
    sized = {"model.n_layer": 1, "training.optimizer.learning_rate": 0.001}
    return {
        "worse": made(folder, "worse", 0.3, question="Does it harm?").path,
        "better": made(folder, "better", -0.3, overrides=sized, question="Does it help?").path,
        "apart": made(folder, "apart", 0.0, arms=arms, question="What of it?").path,
    }


@pytest.fixture(scope="module")
def studies(folders: dict[str, Path]) -> list[Material]:
    return [material_of(load_results(path)) for path in folders.values()]


def prose(document: Document) -> str:
    cells = [
        " ".join((block.table.caption, *itertools.chain(*block.table.rows)))
        for part in (*document.parts, *document.appendix)
        for block in part.blocks
        if isinstance(block, Grid)
    ]
    return " ".join([*(paragraph.text for paragraph in document.paragraphs), *cells])


def test_every_number_stands_in_the_records(studies: list[Material]) -> None:
    document = compose(*studies)
    known = set().union(*(known_numbers(one) for one in studies))
    # What is counted over all studies, or per study beside what its own paper counts.
    known |= {float(sum(one.analysis.n_trials for one in studies)), float(len(studies))}
    known |= {float(number) for number in range(len(studies) + 1)}
    for one in studies:
        found = judged(one)
        known |= {float(len(found) // len(one.study.judged))}
    assert unknown_numbers(document, known) == []


def test_what_studies_share_is_said_once() -> None:
    a = say("All have this. ", "A has this ", Cite("LeScao2022"), ". Both have this.")
    b = say("All have this. B has that. Both have this.")
    c = say("All have this. It is in ", Ref("arms"), ".")
    once = said_once({"a": [a], "b": [b], "c": [c]})
    assert [p.text for p in once.common] == ["All have this. In all but c: Both have this."]
    assert {name: own.text for name, own in once.own.items()} == {
        "a": "A has this .",
        "b": "B has that.",
        "c": "It is in .",
    }
    alone = said_once({"a": [a]})
    assert alone.common == [joined(sentences(a))] and not alone.own["a"].runs


def test_the_paper_of_one_study_is_that_of_several_with_one(studies: list[Material]) -> None:
    """Everything is common to a single study: nothing of its method is left to the appendix."""
    one, several = compose(studies[0]), compose(*studies)
    titles = [part.title for part in several.parts]
    assert titles[:4] == ["Introduction", "Related work", "Method", "Results"]
    assert titles[4:7] == ["Worse", "Better", "Apart"]
    shared = {part.title for part in one.parts} & set(titles)
    assert {"Introduction", "Related work", "Method", "Limits", "Reproducibility"} <= shared
    assert several.title == "Norms: 3 registered studies"
    text = prose(several)
    for fact in ("each parameter is drawn from a random stream", "registered before its first run"):
        assert text.count(fact) <= 1
    for material in studies:
        assert material.results.root in text and material.study.question in text


# Facts of one study's records, and how the paper must then differ.
FACTS = (
    *("setting.model.n_head", "setting.training.grad_clip", "setting.data.tokenizer"),
    *("parameters", "data.vocab_size", "setting.training.optimizer.eps"),
)


@pytest.mark.parametrize("key", FACTS)
@pytest.mark.parametrize("which", [0, 1])
def test_a_fact_of_any_study_changes_the_text(
    studies: list[Material], key: str, which: int
) -> None:
    """Whether it was common to all, and is no longer, or the study's own."""
    material = studies[which]
    trials = json.loads(
        json.dumps([[*key, trial] for key, trial in material.results.trials.items()])
    )
    mutated = {(arm, seed): trial for arm, seed, trial in trials}
    for trial in mutated.values():
        value: Any = trial
        for part in key.split("."):
            value = value[part]
        at(trial, key, other(value))
    changed = list(studies)
    changed[which] = replace(material, results=replace(material.results, trials=mutated))
    assert prose(compose(*changed)) != prose(compose(*studies)), f"nothing depends on {key}"


def test_verdicts_and_effects_change_the_text(studies: list[Material], tmp_path: Path) -> None:
    """Of each kind: other words in the abstract, the answers, the section and the advice."""
    before = compose(*studies)
    texts = {part.title: str(part) for part in before.parts}
    after = compose(*studies[:2], material_of(made(tmp_path, "apart", 0.3)))
    for title in ("Results", "Apart", "Recommendations"):
        now = next(str(part) for part in after.parts if part.title == title)
        assert now != texts[title]
    assert before.abstract != after.abstract
    said = before.abstract[0].text
    assert (
        "Of 8 comparisons on validation loss, 2 are worse (+0.3010 nats/token), 2 are better "
        "(-0.2990 nats/token) and 4 are within the margin (+0.0010 nats/token)." in said
    )
    assert "Taken apart, scale, centring and gain (LayerNorm) is within the margin (" in said
    assert "by rules that each study registered before its own first trial" in said
    assert "its sign depends on the setting" in texts["Recommendations"]


def test_the_abstract_is_short_and_has_nothing_that_is_described_only(
    studies: list[Material],
) -> None:
    few = [replace(verdict, outcome="DESCRIPTIVE ONLY") for verdict in studies[1].verdicts]
    described = replace(studies[1], verdicts=few)
    text = compose(studies[0], described, studies[2]).abstract[0].text
    assert "Of 6 comparisons" in text and "-0.2990" not in text and "described" not in text
    assert len(text.split()) <= 355
    own = OwnWords(paragraphs={"Abstract": [say(" ".join(["word"] * 120))]})
    first, second = compose(*studies, own=own).abstract
    assert len(f"{first.text} {second.text}".split()) <= 355
    assert "comparisons on validation loss" in second.text


def test_advice_is_total_and_never_contradicts_itself() -> None:
    """Over every set of states: one rule holds, and what it says is so."""
    fired = set()
    stabilities = ("stable", "cured", "rarer", "destabilised", "not cured")
    for quality in _subsets((*RESOLVED, "open")):
        for stability in _subsets(stabilities):
            record = Record(frozenset(quality), frozenset(stability))
            advice = advice_on(record)
            fired.add(RULES.index(advice))
            assert advice.kind in KINDS
            if advice.kind == "use":
                assert "harm" not in quality and "destabilised" not in stability
                assert "gain" in quality or "cured" in stability
            if advice.kind == "leave out":
                assert "destabilised" in stability or not {"gain"} & set(quality)
                assert "cured" not in stability
            if not quality:
                assert advice.kind == "undecided"
    assert fired == set(range(len(RULES))), "a rule that never holds"


def _subsets(values: tuple[str, ...]) -> list[tuple[str, ...]]:
    sizes = range(len(values) + 1)
    return [one for n in sizes for one in itertools.combinations(values, n)]


def test_mechanism_is_read_from_what_sets_arms_apart(studies: list[Material]) -> None:
    part = next(part for part in compose(*studies).parts if part.title == "Mechanism")
    (table,) = (block.table for block in part.blocks if isinstance(block, Grid))
    assert [row[0] for row in table.rows] == [
        "scale, centring and gain (LayerNorm)",
        "scale and gain (RMSNorm)",
        "centring alone",
        "a constant scale alone",
    ]


def test_the_baseline_against_itself_tells_its_error_rates(tmp_path: Path) -> None:
    """And is no evidence on any treatment."""
    arms = {"baseline": {}, "again": {"set": {"model.init.salt": 1}}}
    results = made(tmp_path, "nothing", 0.0, arms=arms)
    assert measured_errors(results) is None
    rate = {"name": "any claim", "nominal": 0.05, "rate": 0.025, "n": 40}
    rate["interval"] = {"low": 0.0, "high": 0.125, "level": 0.95}
    counts = {"replicates": 40, "contrasts": 1, "pairs": 5}
    record = results.path / "null.json"
    record.write_text(json.dumps(counts | {"rates": [rate]}))
    errors = measured_errors(results)
    material = replace(material_of(results), errors=errors)
    assert judged(material) == [] and answer_of(material) == (
        "of 40 studies of nothing, any claim: 2.5% (nominal 5.0%)"
    )
    section = str(study_section(material, "title", details(1)[0]))
    assert "2.5% [0.0%, 12.5%]" in section and "whatever is claimed of them is an error" in section
    record.write_text(json.dumps(counts | {"rates": [rate | {"rate": 7}]}))
    with pytest.raises(ParibusError, match="is not what `paribus null` writes"):
        measured_errors(results)


TEXT = """+++
title = "Own title"
authors = ["A. Author (Here)", "B. Author"]
+++
# Introduction
Own words #panic() $x$ with a citation [@Wang2022].
Still the same paragraph.

Another one.
# apart
Of that study.
"""


def test_own_words_stand_where_they_are_put(studies: list[Material], tmp_path: Path) -> None:
    path = tmp_path / "paper.md"
    path.write_text(TEXT, encoding="utf-8")
    own = read_own_words(path, [*SECTIONS, "apart"])
    document = compose(*studies, own=own)
    assert document.title == "Own title"
    assert document.authors == ("A. Author (Here)", "B. Author")
    parts = {part.title: part for part in document.parts}
    *_, first, second = parts["Introduction"].blocks
    assert isinstance(first, Paragraph) and Cite("Wang2022") in first.runs
    assert first.text.startswith("Own words #panic() $x$") and "same paragraph" in first.text
    assert isinstance(second, Paragraph) and second.text == "Another one."
    assert parts["Apart"].blocks[-1] == Paragraph(("Of that study.",))
    assert "Words of the authors stand in Introduction and apart" in prose(document)
    assert compose(*studies, own=OwnWords()) == compose(*studies)


WRONG = {
    "no such section": ("# Conclusions\nx", "no section or study is called 'Conclusions'"),
    "no heading": ("x", "stands under no heading"),
    "unknown key": ('+++\nauthor = "x"\n+++\n', "unknown key 'author': did you mean 'authors'?"),
    "no end": ("+++\nauthors = []\n", "no second line of +++ ends"),
    "not a list": ('+++\nauthors = "x"\n+++\n', "authors is a list"),
    "not TOML": ("+++\nauthors\n+++\n", "not valid TOML"),
    "unknown work": ("# Limits\n[@Nobody2020]", "unknown work [@Nobody2020]"),
    "too long": (f"# Limits\n{'x' * 5_000}", "make it shorter"),
    "control characters": ("# Limits\nx\x1b[31m", "control character U+001B"),
    "too large": ("x" * 70_000, "bytes"),
}


@pytest.mark.parametrize("case", WRONG)
def test_own_words_that_cannot_be_are_one_line(case: str, tmp_path: Path) -> None:
    text, says = WRONG[case]
    path = tmp_path / "paper.md"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ParibusError, match=re.escape(says)):
        read_own_words(path, SECTIONS)


@pytest.fixture(scope="module")
def printed(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The paper of all three with its parts, by the command line; paper.md lies beside them."""
    folder = tmp_path_factory.mktemp("printed")
    names = ("worse", "apart")
    copies = [shutil.copytree(folders[name], folder / name) for name in names]
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    (folder / "paper.md").write_text(TEXT, encoding="utf-8")
    command = ["paper", *map(str, copies), "-o", str(folder / "paper.pdf")]
    assert main([*command, "--parts", str(folder / "parts")]) == 0
    assert {file: file.read_bytes() for file in before} == before, "studies are only read"
    return folder


def test_it_is_set_in_few_pages_with_all_that_it_shows(printed: Path) -> None:
    assert (printed / "paper.pdf").read_bytes().startswith(b"%PDF")
    data = json.loads((printed / "parts" / "document.json").read_text("utf-8"))
    assert data["authors"] == ["A. Author (Here)", "B. Author"]
    figures = {
        block["name"]
        for part in (*data["parts"], *data["appendix"])
        for block in part["blocks"]
        if block["kind"] == "figure"
    }
    assert figures == {path.stem for path in (printed / "parts" / "figures").glob("*.svg")}
    assert "overview" in figures
    if shutil.which("pdftotext"):
        command = ["pdftotext", printed / "paper.pdf", "-"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for name in ("worse", "apart"):
            assert load_results(printed / name).root in said
        assert "Own words #panic() $x$" in " ".join(said.split())
        before, _, _ = said.partition("References")
        assert before.count("\f") <= 9


def test_less_is_shown_where_there_is_no_room(studies: list[Material]) -> None:
    """Each step of detail shows no more than the one before, and the last one no figure."""
    first, *others = studies
    figures = [forest(first.analysis, one) for one in first.study.judged]
    drawn = [replace(first, figures=figures), *others]
    counts = []
    for detail in details(len(drawn)):
        chosen = chosen_figures(drawn, detail.figures)
        blocks = study_section(drawn[0], "title", detail, chosen["worse"]).blocks
        counts.append(sum(isinstance(block, (Picture, Grid)) for block in blocks))
    assert counts == sorted(counts, reverse=True) and counts[0] > counts[-1] == 0


def test_bad_input_is_one_line(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, out = folders["worse"], tmp_path / "x.pdf"
    again = shutil.copytree(good, tmp_path / "again")
    damaged = shutil.copytree(folders["better"], tmp_path / "damaged")
    record = next(damaged.glob("trials/*/*/evaluation.json"))
    record.write_text(record.read_text().replace("0.6", "0.7"))
    open_ = shutil.copytree(folders["better"], tmp_path / "open")
    shutil.rmtree(open_ / "trials" / "rmsnorm" / "seed-2")
    cases: dict[str, tuple[list[Path], Path]] = {
        "once more": ([good, good], out),
        f"{again} holds the study of": ([good, again], out),
        "changed": ([good, damaged], out),
        "missing: rmsnorm/seed-2": ([good, open_], out),
        "no results folder": ([good, tmp_path], out),
        "0 results folders": ([], out),
        "ends in .pdf": ([good], good / "study.json"),
    }
    for says, (given, target) in cases.items():
        assert main(["paper", *map(str, given), "-o", str(target)]) == 2
        told = capsys.readouterr().err
        assert says in told and told.count("\n") == 1, told
    assert not out.exists() and load_results(good).finished


def test_studies_of_one_name_are_told_apart() -> None:
    copies = [Path("one"), Path("two")]
    assert _labels(copies, ["worse", "worse"]) == ["worse (one)", "worse (two)"]
    assert _labels(copies, ["a", "b"]) == ["a", "b"]
    deeper = [Path("x/one"), Path("y/one")]
    assert _labels(deeper, ["a", "a"]) == [f"a ({path})" for path in deeper]
