"""Files that have no seal may hold anything: whoever reads them says so in one line."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.files import file_digest
from paribus.results import ResultsFolder, load_results
from paribus.results.formats import write_json
from paribus.verification import verify

from ..build import write_results
from ..conftest import studies_in
from ..tools import verb

TRIAL = Path("trials") / "baseline" / "seed-1"
GOOD_SPEEDS = {"arm": ["baseline"], "seed": [1], "kind": ["training"], "tokens": [8]}
OTHER_KINDS = ("[]", "null", '"text"', "{}", "", "\x00\xff")

BOTH = ("registration.json", TRIAL / "timing.json")
JSON = [(name, text) for name in BOTH for text in OTHER_KINDS]
JSON += [
    ("registration.json", {"study_digest": 3}),
    ("registration.json", {"seeds": "12"}),
    ("registration.json", {"number": True}),
    ("registration.json", {"own_modules": []}),
    (TRIAL / "timing.json", {"training_seconds": 0}),
    (TRIAL / "timing.json", {"training_seconds": "long"}),
    (TRIAL / "timing.json", {"training_seconds": None}),
    ("study.json", "[]"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    study = studies_in(folder)(arms={"baseline": {}, "b": {"set": {"model.bias": False}}})
    return write_results(folder / "r", study, lambda arm, seed: 2 + 0.01 * seed).path


@pytest.fixture
def damaged(made, tmp_path):
    return shutil.copytree(made, tmp_path / "r")


def require_refusal(words: tuple[str, ...], folder: Path, file: Path) -> None:
    code, _, error = verb(*words, folder)
    assert code == 2, (words, error)
    assert error.count("\n") == 1 and error.startswith("paribus: ")
    assert file.name in error and "Traceback" not in error


@pytest.mark.parametrize(("name", "content"), JSON, ids=lambda value: str(value)[:30])
def test_malformed_json(damaged, name, content):
    file = damaged / name
    if isinstance(content, dict):
        content = json.dumps(json.loads(file.read_text()) | content)
    file.write_text(content, encoding="latin-1")
    require_refusal(("report", "--no-page"), damaged, file)


def test_counts_of_the_text_are_those_that_were_sealed(damaged):
    folder = ResultsFolder(damaged)
    counts = {"token_classes": {"train": {"numeric": 3}}}
    folder.seal("data.json", counts)
    assert load_results(damaged).data == counts
    (damaged / "data.json").write_text('{"token_classes": {"train": {"numeric": 4}}}')
    require_refusal(("report",), damaged, damaged / "data.json")
    assert any("data.json" in f for f in verify(damaged).findings)
    (damaged / "manifest.json").unlink()  # what is not sealed counts for nothing
    assert load_results(damaged).data == {}
    assert any("data.json" in finding for finding in verify(damaged).findings)


def throughput(**columns: object) -> pa.Table:
    return pa.table({**GOOD_SPEEDS, **columns})


@pytest.mark.parametrize(
    "table", [None, pa.table({"x": [1]}), throughput()], ids=["empty", "other", "no seconds"]
)
def test_a_malformed_table_is_one_line(damaged, table):
    file = damaged / "throughput.parquet"
    if table is None:
        file.write_bytes(b"")
    else:
        trials = ResultsFolder(damaged).read_study().trials
        full = pa.concat_tables([table] * len(trials))
        if "arm" in full.column_names:
            for at, name in enumerate(("arm", "seed")):
                full = full.set_column(at, name, pa.array([trial[at] for trial in trials]))
        pq.write_table(full, file)
    # Sealed as it is: a seal is not a promise of sense.
    write_json(damaged / "manifest.json", {file.name: file_digest(file)})
    require_refusal(("report", "--no-page"), damaged, file)


@pytest.mark.parametrize("options", [["--no-page"], ["--no-pdf"]], ids=str)
def test_read_only(damaged, monkeypatch, options):
    def read_only(*args: object, **options: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("paribus.files.tempfile.mkstemp", read_only)
    code, _, error = verb("report", *options, damaged)
    assert (code, error.count("\n")) == (2, 1)
    assert "cannot write" in error and "Read-only file" in error
