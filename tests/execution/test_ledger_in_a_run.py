"""Sealed parts of one text, in studies that split it at other places."""

from __future__ import annotations

import json
from typing import Any

import pytest

import paribus
from paribus.ledger import events_in
from paribus.results import ResultsFolder, opened_texts

from ..conftest import SMALL, studies_in

pytestmark = pytest.mark.usefixtures("one_process")

TABLES: dict[str, Any] = {
    "arms": {"baseline": {}, "layernorm": {"set": {"model.embedding.norm": "layernorm"}}},
    "tasks": {"names": []},
    "seeds": [1],
}


def split(share: float) -> dict[str, Any]:
    return {"data": SMALL["data"] | {"test_fraction": share}}


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Studies of one text and ledger: without a test part, and with a tenth and 11% of it."""
    folder = tmp_path_factory.mktemp("three")
    make, shares = studies_in(folder), {"plain": 0.0, "tenth": 0.1, "more": 0.11}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARIBUS_LEDGER", str(folder / "ledger.jsonl"))
        return [
            paribus.run(make(**TABLES | split(share), name=name), folder / name, device="cpu")
            for name, share in shares.items()
        ]


def test_another_split_of_the_same_text_counts(three):
    uses = [opened_texts.read_reuse(ResultsFolder(results.path)) for results in three]
    assert uses[0] is None
    assert uses[1] is not None and uses[2] is not None
    # The test part of a study without one is its validation text: tests are made on that.
    assert (uses[1].opened_for, uses[1].validated, uses[1].studies, uses[1].tests) == (1, 1, 2, 2)
    assert (uses[2].opened_for, uses[2].validated, uses[2].studies, uses[2].tests) == (2, 1, 3, 3)
    assert uses[2].first is not None and uses[2].first.study == "plain"


def test_a_run_that_was_killed_between_ledger_and_folder_goes_on(
    small_study, tmp_path, ledger, monkeypatch
):
    study = small_study(**TABLES | split(0.1))
    seal = ResultsFolder.seal

    def killed(self: ResultsFolder, name: str, value: Any) -> None:
        if name == "ledger.json":
            raise KeyboardInterrupt
        seal(self, name, value)

    with monkeypatch.context() as patch:
        patch.setattr(ResultsFolder, "seal", killed)
        with pytest.raises(KeyboardInterrupt):
            paribus.run(study, tmp_path / "r", workers=1)
    before = [event.text for event in events_in(ledger) if event.text]
    assert [text.role for text in before] == ["validation", "test"]
    assert not (tmp_path / "r" / "ledger.json").exists()
    results = paribus.run(study, tmp_path / "r", device="cpu")
    after = [event.text for event in events_in(ledger) if event.text]
    assert after == before
    uses = json.loads((results.path / "ledger.json").read_text())
    assert uses["recorded"] and uses["opened_for"] == 1 and uses["first"] is None
