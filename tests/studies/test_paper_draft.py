"""The draft of the paper: every number in it is in the kept studies, and none has changed."""

from __future__ import annotations

import pytest

from paribus.report.paper import check

from .scripts import HOME

PAPER = HOME.parent / "docs/paper"
pytestmark = pytest.mark.skipif(not HOME.exists(), reason="needs a checkout")


@pytest.mark.slow
def test_the_draft_is_bound_and_as_it_was_set() -> None:
    assert (PAPER / "paper.lock.json").exists()
    assert check(PAPER / "paper.md") == []
