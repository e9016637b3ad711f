"""Records carry one schema number, and no other number is read."""

import json

import pytest

from paribus.results.formats import read_json, write_json
from paribus.schema import KEY, SCHEMA

from .tools import refused


@pytest.mark.parametrize("number", [SCHEMA - 1, SCHEMA + 1, "9", True, None])
def test_a_record_of_another_schema_is_refused(number, tmp_path):
    write_json(tmp_path / "a.json", {"b": 1})
    assert json.loads((tmp_path / "a.json").read_text()) == {KEY: SCHEMA, "b": 1}
    assert read_json(tmp_path / "a.json") == {"b": 1}
    for other in ({KEY: number, "b": 1}, {"b": 1}, []):
        (tmp_path / "a.json").write_text(json.dumps(other))
        with refused("value"):
            read_json(tmp_path / "a.json")
