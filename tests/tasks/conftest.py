"""The text of `quickstart`, and the suite made from it: once for all tests here."""

from __future__ import annotations

import pytest

from paribus.data import Dataset, load_dataset
from paribus.study import load_study
from paribus.tasks import Suite, build_suite


@pytest.fixture(scope="session")
def dataset() -> Dataset:
    study = load_study("quickstart")
    return load_dataset(study.data, study.folder)


@pytest.fixture(scope="session")
def suite(dataset: Dataset) -> Suite:
    return build_suite(dataset, seed=0, window=128)
