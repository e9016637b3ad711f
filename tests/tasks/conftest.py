"""The suite made from the text of `quickstart`: once for all tests here."""

import pytest

from paribus.engine.tasks import build_suite


@pytest.fixture(scope="session")
def suite(dataset):
    return build_suite(dataset, seed=0, window=128)
