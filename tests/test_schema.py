"""Records carry one schema number, and no other number is read."""

import json

import pytest

from paribus.errors import ParibusError
from paribus.results.formats import read_json, write_json
from paribus.schema import KEY, SCHEMA, stamped


def test_what_is_written_is_read(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1})
    assert json.loads((tmp_path / "a.json").read_text()) == {KEY: SCHEMA, "b": 1}
    assert read_json(tmp_path / "a.json") == {"b": 1}


@pytest.mark.parametrize("number", [SCHEMA - 1, SCHEMA + 1, 0, -1, "9", True, 1.5, None, [SCHEMA]])
def test_another_number_is_refused(number, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({KEY: number, "b": 1}))
    with pytest.raises(ParibusError):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize("text", ['{"b": 1}', "[]", "[1]", "3", "null"])
def test_a_record_without_a_number_is_refused(text, tmp_path):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ParibusError):
        read_json(tmp_path / "a.json")


def test_the_key_is_not_the_users():
    with pytest.raises(ParibusError):
        stamped({KEY: "mine"})
