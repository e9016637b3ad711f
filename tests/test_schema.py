"""Records carry one schema number, and no other number is read."""

import json

import pytest

from paribus.results.formats import read_json, write_json
from paribus.schema import KEY, SCHEMA, stamped

from .tools import refused


def test_what_is_written_is_read(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1})
    assert json.loads((tmp_path / "a.json").read_text()) == {KEY: SCHEMA, "b": 1}
    assert read_json(tmp_path / "a.json") == {"b": 1}


NUMBERS = [SCHEMA - 1, SCHEMA + 1, -1, "9", True, None]


@pytest.mark.parametrize(
    "text", [*(json.dumps({KEY: number, "b": 1}) for number in NUMBERS), '{"b": 1}', "[]", "3"]
)
def test_a_record_of_another_form_is_refused(text, tmp_path):
    (tmp_path / "a.json").write_text(text)
    with refused("value"):
        read_json(tmp_path / "a.json")


def test_the_key_is_not_the_users():
    with refused("value"):
        stamped({KEY: "mine"})
