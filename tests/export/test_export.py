"""What is refused, and what a folder holds: written whole or not at all."""

import json
import shutil

import safetensors.numpy

import paribus
from paribus.engine.data import load_dataset
from paribus.results import Results

from ..build import write_results
from ..tools import refused

FILES = {
    "README.md",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
}


def test_equal_files(trained, exported, tmp_path):
    assert {path.name for path in exported("baseline").iterdir()} == FILES
    assert {path.name for path in exported("layernorm").iterdir()} == FILES | {
        "modeling_paribus.py"
    }
    (tmp_path / "again").mkdir()  # an empty folder may be there
    again = trained.export("layernorm", tmp_path / "again")
    for path in exported("layernorm").iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["again"]
    # The tied head is not stored twice.
    weights = safetensors.numpy.load_file(exported("baseline") / "model.safetensors")
    assert sum(value.size for value in weights.values()) == sum(
        parameter.numel() for parameter in trained.model("baseline").parameters()
    )


def test_a_folder_that_holds_something_is_left_alone(trained, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    for out in (tmp_path, tmp_path / "mine.txt"):
        with refused("exists"):
            trained.export("baseline", out)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_another_text_and_changed_records_are_refused(trained, tmp_path):
    with refused("missing", match="--folder"):
        paribus.export_trial(trained.results.path, "baseline", 1, tmp_path / "out", folder=tmp_path)
    shutil.copytree(trained.folder / "text", tmp_path / "text")
    (tmp_path / "text" / "0.txt").write_text("Another letter: ß", encoding="utf-8")
    with refused("changed", match="baseline/seed-1"):
        paribus.export_trial(trained.results.path, "baseline", 1, tmp_path / "out", folder=tmp_path)
    copy = shutil.copytree(trained.results.path, tmp_path / "results")
    weights = copy / "trials" / "baseline" / "seed-1" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x07")
    with refused("changed", match="was changed"):
        paribus.export_trial(copy, "baseline", 1, tmp_path / "out", folder=trained.folder)
    assert not (tmp_path / "out").exists()


def test_unfinished_or_edited_trials_are_refused(small_study, tmp_path):
    (tmp_path / "ideas.py").write_text("from torch.nn import Identity as RMS")
    own = {"set": {"model.modules.block_norm": "ideas.py:RMS"}}
    study = small_study(arms={"baseline": {}, "own": own})
    results: Results = write_results(
        tmp_path / "made", study, lambda arm, seed: 2.0, skip=[("baseline", 2)]
    )
    with refused("unfinished", match="baseline/seed-2"):
        paribus.export_trial(results.path, "baseline", 2, tmp_path / "out", folder=tmp_path)
    (tmp_path / "ideas.py").write_text("from torch.nn import SiLU as RMS")
    with refused("changed", match=r"= 'ideas\.py:RMS'"):
        paribus.export_trial(results.path, "own", 1, tmp_path / "out", folder=tmp_path, trust=True)
    assert not (tmp_path / "out").exists()


def test_one_document_has_no_special_tokens(small_study, tmp_path):
    study = small_study()
    results = write_results(tmp_path / "made", study, lambda arm, seed: 2.0)
    out = tmp_path / "out"
    paribus.export_trial(results.path, "baseline", 1, out, folder=tmp_path)
    config = json.loads((out / "config.json").read_text())
    tokenizer = load_dataset(study.data, tmp_path).tokenizer
    assert config["vocab_size"] == tokenizer.vocab_size == len(tokenizer.characters)
    assert config["bos_token_id"] is config["eos_token_id"] is config["pad_token_id"] is None
