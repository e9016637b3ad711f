"""The suite made from the text of `quickstart`: once for all tests here."""

import pytest

from paribus.engine.tasks import write_suite


@pytest.fixture(scope="session")
def suite(dataset, tmp_path_factory):
    return write_suite(tmp_path_factory.mktemp("tasks") / "suite", dataset, 0, 128, n_least=80)
