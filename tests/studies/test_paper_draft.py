"""The draft of the paper: every number in it is in the kept studies, and none has changed."""

from __future__ import annotations

import importlib
import json

import pytest

from paribus.report.paper import check

from .scripts import HOME

PAPER = HOME.parent / "docs/paper"
pytestmark = pytest.mark.skipif(not HOME.exists(), reason="needs a checkout")


@pytest.mark.slow
def test_the_draft_is_bound_and_as_it_was_set() -> None:
    assert (PAPER / "paper.lock.json").exists()
    assert check(PAPER / "paper.md") == []


@pytest.mark.slow
def test_what_scripts_compute_for_it_is_of_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (PAPER, HOME):  # each imports its neighbours
        monkeypatch.syspath_prepend(folder)
    derived, processors = map(importlib.import_module, ("derived", "processors"))
    told = json.loads((PAPER / "derived.json").read_text())
    assert derived.computed() == pytest.approx(told, rel=1e-9)
    told = json.loads((HOME / "processors.json").read_text())
    found = processors.summary(processors.differences(HOME / "embedding-factorial-long"))
    assert found == pytest.approx(told, rel=1e-9)
