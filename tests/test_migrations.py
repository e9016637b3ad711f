"""Every file says its schema, and older ones are read through one table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus import migrations
from paribus.comparison import agree
from paribus.errors import ParibusError
from paribus.migrations import KEY, SCHEMA, Migration, absent, leniency, renamed, upgraded
from paribus.results import Results, ResultsFolder, load_results
from paribus.results.formats import read_json, read_record, write_json, write_table
from paribus.study import Study, load_study

Maker = Callable[..., Study]
Fabricate = Callable[..., Results]


def test_a_record_says_its_schema_and_is_read_without_it(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"b": 1})
    assert json.loads(path.read_text()) == {"b": 1, KEY: SCHEMA}
    assert read_record(path) == ({"b": 1}, SCHEMA)
    path.write_text('{"b": 1}')
    assert read_record(path) == ({"b": 1}, 0)
    table = tmp_path / "x.parquet"
    write_table(table, pa.table({"x": [1]}))
    assert pq.read_schema(table).metadata[KEY.encode()] == str(SCHEMA).encode()


@pytest.mark.parametrize("number", [-1, True, "1", None, [1]])
def test_a_schema_that_is_no_number_is_refused(number: object, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({KEY: number}))
    with pytest.raises(ParibusError, match=KEY):
        read_json(path)


def test_a_later_schema_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({KEY: SCHEMA + 1}))
    with pytest.raises(ParibusError, match="newer"):
        read_json(path)


def test_renamed_keys_are_found_wherever_they_are() -> None:
    value = {"arms": {"a": {"against": "b"}, "c": {}}, "rows": [{"old": 1}, {"old": 2}]}
    assert renamed("arms.*.against", "reference")(value)["arms"] == {
        "a": {"reference": "b"},
        "c": {},
    }
    assert renamed("rows.old", "new")(value)["rows"] == [{"new": 1}, {"new": 2}]
    assert absent("arms.*.x", 0)(value)["arms"]["c"] == {"x": 0}
    with pytest.raises(ParibusError, match="both stated"):
        renamed("a", "b")({"a": 1, "b": 2})


def test_a_verdict_from_before_is_a_list() -> None:
    assert upgraded("verdict.json", [1], "x") == ({"verdicts": [1]}, 0)
    assert upgraded("verdict.json", {"verdicts": [1], KEY: 1}, "x") == ({"verdicts": [1]}, 1)


@pytest.mark.parametrize(
    ("rule", "schema", "kept"),
    [("equivalence", 2, None), ("superiority", 2, 0.01), ("equivalence", 3, 0.01)],
)
def test_budgets_that_no_rule_weighed_are_unset_in_old_records(
    rule: str, schema: int, kept: float | None
) -> None:
    decision = {"rule": rule, "calibration_budget": 0.01, "throughput_budget": 0.05}
    study, _ = upgraded("study.json", {"decision": decision, KEY: schema}, "x")
    assert study["decision"]["calibration_budget"] == kept


def test_a_new_field_changes_no_digest_that_was_sealed(
    fabricate: Fabricate, small_study: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of a schema that lacks a field, and calls another by its old name."""
    results = fabricate(small_study(), lambda arm, seed: 2.0)
    path = results.path / "study.json"
    table = json.loads(path.read_text())
    del table["stability"]["mad_multiplier"], table[KEY]
    table["arms"]["layernorm"]["versus"] = table["arms"]["layernorm"].pop("reference")
    path.write_text(json.dumps(table))
    later = (
        *(one for one in migrations.MIGRATIONS if one.file != "study.json"),
        Migration(1, "study.json", renamed("arms.*.versus", "reference")),
    )
    monkeypatch.setattr(migrations, "MIGRATIONS", later)
    folder = ResultsFolder(results.path)
    study = folder.read_study()
    assert study.is_same(results.study)
    assert study.digest != results.study.digest  # it is of the bytes there
    del table["title"], table["question"]
    path.write_text(json.dumps(table))
    assert folder.read_study().digest == study.digest  # words alone have changed
    # Going on with it: the same digest, and a file that keeps its spelling.
    same = folder.adopt(small_study())
    assert same.digest == study.digest
    before = path.read_bytes()
    folder.create(same)
    written = json.loads(path.read_text())
    assert KEY not in written and "versus" in written["arms"]["layernorm"]
    assert {k: v for k, v in written.items() if k not in ("title", "question")} == json.loads(
        before
    )
    more = folder.adopt(small_study(seeds=[*results.study.seeds, 77]))
    assert more.digest != study.digest and more.as_written["seeds"][-1] == 77
    assert "mad_multiplier" not in more.as_written["stability"]


def test_a_study_that_was_read_and_written_is_the_same_bytes(
    fabricate: Fabricate, small_study: Maker
) -> None:
    results = fabricate(small_study(), lambda arm, seed: 2.0)
    path = results.path / "study.json"
    before = path.read_bytes()
    ResultsFolder(results.path).create(load_results(results.path).study)
    assert path.read_bytes() == before
    assert load_study(path).digest == results.study.digest


def test_a_study_file_may_use_an_old_spelling_and_is_told_the_new_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = (
        'name = "s"\nseeds = [1]\n[training]\niterations = 40\n'
        "[arms.baseline]\n[arms.b]\nset.'model.bias' = false\n"
        "[arms.c]\nagainst = 'b'\nset.'model.bias' = true\n"
    )
    (tmp_path / "s.toml").write_text(text)
    assert load_study(tmp_path / "s.toml").reference("c") == "b"
    assert "`reference`" in caplog.text
    caplog.clear()
    (tmp_path / "s.toml").write_text(text.replace("against", "reference"))
    assert load_study(tmp_path / "s.toml").reference("c") == "b" and not caplog.text


def test_a_tuning_of_several_keys_had_no_sensitivities() -> None:
    of_several = {"tuned": {"sensitivities": [], "points": []}, KEY: 5}
    assert upgraded("analysis.json", of_several, "x") == ({"tuned": {"points": []}}, 5)
    fresh = {"tuned": {"sensitivities": [{"arm": "baseline"}], "points": []}}
    assert agree({"tuned": {"points": []}}, fresh, leniency("analysis.json", 5))
    assert not agree({"tuned": {"points": []}}, fresh, leniency("analysis.json", SCHEMA))
    of_rates = {"tuned": {"sensitivities": [{"arm": "baseline"}]}, KEY: 5}
    assert upgraded("analysis.json", of_rates, "x")[0]["tuned"]["sensitivities"]
