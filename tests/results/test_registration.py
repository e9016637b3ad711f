"""Registration: fixed before the first run, continued or refused afterwards."""

import json

import pytest

import paribus
from paribus.analysis import analyse
from paribus.decision import decide
from paribus.errors import ParibusError
from paribus.report.model import build_report
from paribus.report.page import render
from paribus.results import ResultsFolder, load_results, settle

from ..build import registered, write_results
from ..tools import refused

DATA = {"baseline": {"digests": {"corpus": "abc"}}}


def test_everything_that_counts_is_written_down(small_study, tmp_path):
    study, folder = small_study(), ResultsFolder(tmp_path / "r")
    settle(folder, study, registered(study, DATA, "cpu"))
    written = json.loads((folder.path / "registration.json").read_text())
    assert written["study_digest"] == study.digest
    assert written["seeds"] == [1, 2]
    assert written["data"] == DATA
    assert {"torch", "numpy", "scipy", "paribus"} <= written["packages"].keys()
    for part in ("device", "registered_at"):
        assert written[part]


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ({"training.iterations": 9}, "training.iterations = 8, not 9"),
        ({"training.precision": "bfloat16"}, "training.precision = float32, not bfloat16"),
        ({"inference.alpha": 0.1}, "inference.alpha = 0.05, not 0.1"),
        ({"seeds": [1, 3]}, "seeds"),
    ],
)
def test_edited_studies(small_study, tmp_path, overrides, named):
    folder = ResultsFolder(tmp_path / "r")
    settle(folder, small_study(), registered(small_study(), DATA, "cpu"))
    edited = small_study(overrides)
    with pytest.raises(ParibusError) as caught:
        settle(folder, edited, registered(edited, DATA, "cpu"))
    assert named in str(caught.value)


def test_other_text_device_or_source_is_refused_and_another_library_is_not(small_study, tmp_path):
    study, folder = small_study(), ResultsFolder(tmp_path / "r")
    wanted = registered(study, DATA, "cpu")
    assert len(wanted["code"]) == 64
    settle(folder, study, wanted)
    before = (folder.path / "registration.json").read_bytes()
    settle(folder, study, wanted | {"packages": wanted["packages"] | {"torch": "1.0"}})
    other_text = {"data": {"baseline": {"digests": {"corpus": "xyz"}}}}
    for other, named in (
        (other_text, "data.baseline.digests.corpus"),
        ({"device": "cuda"}, "device"),
        ({"code": "0" * 64}, "source"),
    ):
        with refused("different", match=named):
            settle(folder, study, wanted | other)
    assert (folder.path / "registration.json").read_bytes() == before


def test_own_modules_are_registered(small_study, tmp_path):
    (tmp_path / "ideas.py").write_text("from helper import C\nA = C\nB = 1\n")
    (tmp_path / "helper.py").write_text("C = 1")
    arms = {"baseline": {}, "own": {"set": {"model.modules.mlp": "ideas.py:A"}}}
    study, folder = small_study(arms=arms), ResultsFolder(tmp_path / "r")
    settle(folder, study, registered(study, DATA, "cpu"))
    (tmp_path / "ideas.py").write_text("from helper import C\nA = C\nB = 2\n")
    with pytest.raises(ParibusError, match=r"ideas\.py"):  # a file is whole
        settle(folder, study, registered(study, DATA, "cpu"))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("registration.json", None, None),
        ("registration.json", '"digests": {', '"digests": {\n"other": "text", '),
        ("study.json", '"margin": 0.02', '"margin": 5.0'),
    ],
    ids=["without registration", "another text", "another study"],
)
def test_what_was_edited_later_is_invalid(small_study, fabricate, name, old, new):
    study = small_study()
    path = fabricate(study, lambda arm, seed: 2.0 + seed).path
    content = (path / name).read_text()
    (path / name).unlink()
    if old:
        assert old in content
        (path / name).write_text(content.replace(old, new))
    else:
        with refused("missing", match="though 6"):
            settle(ResultsFolder(path), study, registered(study, DATA, "cpu"))
    verdict = decide(analyse(load_results(path)))[0]
    assert (verdict.outcome, verdict.evidence.invalid) == ("INVALID", "unregistered")


DESCRIBED = {
    "question": "Does LayerNorm help?",
    "title": "LayerNorm",
    "arms": {
        "baseline": {},
        "arm": {
            "title": "with LayerNorm",
            "description": "LN(x)",
            "set": {"model.embedding.norm": "layernorm"},
        },
    },
}


def test_words_edited_in_the_results_are_found_and_shown_as_registered(small_study, tmp_path):
    study, path = small_study(seeds=[1, 2, 3, 4, 5], **DESCRIBED), tmp_path / "r"
    assert write_results(path, study, lambda arm, seed: 2.5 + 0.01 * seed).edited == ()
    table = json.loads((path / "study.json").read_text())
    table |= {"question": "Does the arm win?", "title": "The arm wins"}
    table["arms"]["arm"] |= {"title": "the winner", "description": "better"}
    (path / "study.json").write_text(json.dumps(table))
    results = load_results(path)
    assert results.edited == ("arms.arm.description", "arms.arm.title", "question", "title")
    assert (results.study.question, results.study.title) == ("Does LayerNorm help?", "LayerNorm")
    verdicts = decide(analyse(results))
    assert verdicts[0].word != "INVALID"
    report = build_report(verdicts)
    assert report.gravest is not None and report.gravest.code == "edited"
    page = render(results, verdicts.analysis, verdicts)
    assert "Does LayerNorm" in page and "LN(x)" in page
    assert not any(words in page for words in ("Does the arm win?", "The arm wins", "the winner"))
    findings = paribus.verify(path).findings
    for key in results.edited:
        assert any(finding.startswith(f"study.json: {key} ") for finding in findings)


def test_a_run_goes_on_with_edited_words_and_keeps_those_registered(small_study, tmp_path, caplog):
    folder = ResultsFolder(tmp_path / "r")
    for question in ("before", "after"):
        study = small_study(question=question)
        settle(folder, study, registered(study, DATA))
        assert folder.read_study().question == "before"
    (record,) = caplog.records
    assert "question" in record.getMessage()
    written = json.loads((folder.path / "registration.json").read_text())
    assert written["words"]["question"] == "before"


def test_seeds_are_added_by_a_second_stage_alone(small_study, fabricate):
    first = fabricate(small_study(), lambda arm, seed: 2.0 + seed)
    with refused("different", match="paribus extend"):
        ResultsFolder(first.path).require_same(small_study(seeds=[1, 2, 3]))
