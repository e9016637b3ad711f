"""The SDs that ship for `paribus plan` are those of the kept studies."""

from __future__ import annotations

import json

import pytest

from paribus.analysis.spreads import FILE

from .scripts import HOME, script


@pytest.mark.skipif(not HOME.exists(), reason="needs a checkout")
def test_the_shipped_spreads_are_those_of_the_kept_studies() -> None:
    shipped = json.loads(FILE.read_text())["spreads"]
    assert shipped == script("spreads").spreads()["spreads"]
