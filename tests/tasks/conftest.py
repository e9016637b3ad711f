"""The suite made from the text of `quickstart`: once for all tests here."""

from __future__ import annotations

import pytest

from paribus.engine.data import Dataset
from paribus.engine.tasks import Suite, build_suite


@pytest.fixture(scope="session")
def suite(dataset: Dataset) -> Suite:
    return build_suite(dataset, seed=0, window=128)
