"""Folders that earlier forms of paribus wrote: read, verified and judged as they were.

Each archive in `earlier_forms/` is named by the commit whose code wrote it: a study of two arms and
five seeds, without its weights and what can be made of its records. They are never written anew.
Kept studies, which hold later forms, are in tests/studies.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

import paribus
from paribus.migrations import KEY
from paribus.results import ResultsFolder
from paribus.results.store import root_digest

FORMS = sorted((Path(__file__).parent / "earlier_forms").glob("*.tar.xz"))


@pytest.fixture(params=FORMS, ids=lambda form: form.name.partition(".")[0])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path / "r", filter="data")
    return tmp_path / "r"


def test_there_is_one_of_every_form() -> None:
    assert len(FORMS) == 7


def test_an_earlier_form_is_read_and_is_not_wrong(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert KEY not in json.loads((folder / "study.json").read_text())
    found = paribus.verify(folder)
    assert found.findings == ()
    assert found.root == root_digest(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_it_is_judged_by_what_it_registered(folder: Path) -> None:
    told = json.loads((folder / "verdict.json").read_text())
    registered = json.loads((folder / "registration.json").read_text())
    analysis = paribus.analyse(paribus.load_results(folder))
    study = analysis.study
    assert study.digest == registered["study_digest"]
    assert study.inference.test == registered["inference"]["test"]
    assert study.decision.rule == registered["decision"]["rule"]
    (verdict,) = paribus.decide(analysis)
    assert (verdict.row, verdict.outcome) == (told[0]["row"], told[0]["outcome"])
    effect = json.loads((folder / "analysis.json").read_text())["contrasts"][0]["decided"]
    says = analysis.contrast("layernorm", "validation_loss").decided
    assert says is not None and says.mean == pytest.approx(effect["mean"], rel=1e-9)
    assert says.p_value == pytest.approx(effect["p_value"], rel=1e-9)


def test_a_printed_digit_that_was_forged_is_found_in_it(folder: Path) -> None:
    path = folder / "analysis.json"
    record = json.loads(path.read_text())
    record["contrasts"][0]["decided"]["mean"] += 1e-6
    path.write_text(json.dumps(record))
    (finding,) = paribus.verify(folder).findings
    assert "contrasts.0.decided.mean" in finding


def test_it_is_continued_in_its_own_form(folder: Path) -> None:
    """Title and seeds may change; nothing else is rewritten."""
    (folder / "kept.json").unlink()  # what is without its weights is never continued
    there = ResultsFolder(folder)
    study = there.read_study()
    before = json.loads((folder / "study.json").read_text())
    there.create(there.adopt(study.model_copy(update={"title": "Another title"})))
    after = json.loads((folder / "study.json").read_text())
    assert after == before | {"title": "Another title"}
    assert there.read_study().digest == study.digest
