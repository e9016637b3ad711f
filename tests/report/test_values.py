"""`paribus values`: the sample of docs/how-to/paper.md, built and checked, and what is refused."""

import json
import re
from pathlib import Path

import pytest
import typst

import paribus
from paribus.cli import main
from paribus.report.values import check_document, write_values

from ..tools import refused

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "paper.md"
KEPT = ROOT / "studies" / "embedding-norm"


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    """Write the files of the page, and their values; returns the folder."""
    folder = tmp_path_factory.mktemp("paper")
    blocks = dict(re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text("utf-8"), re.S | re.M))
    (folder / "paper.toml").write_text(blocks["toml"].replace("results/embedding-norm", str(KEPT)))
    (folder / "paper.typ").write_text(blocks["typst"], encoding="utf-8")
    write_values(folder / "paper.toml")
    return folder


def test_values_are_those_of_the_records(paper):
    analysis = paribus.analyse(paribus.load_results(KEPT))
    contrast = analysis.contrast("layernorm", "validation_loss")
    says = contrast.decided
    cells = json.loads((paper / "values.json").read_text())["norm"]["validation_loss"]["layernorm"]
    assert cells["effect"][0] == says.mean and cells["low"][0] == says.interval.low
    assert cells["holm"][0] == contrast.holm_p and cells["word"][1] == "WORSE"
    assert cells["change"][1] == "+0.0954 [+0.0896, +0.1011]"


def test_the_sample_of_the_page_compiles(paper):
    assert typst.compile(str(paper / "paper.typ")).startswith(b"%PDF")
    found = typst.query(str(paper / "paper.typ"), "figure")
    assert "forest.svg" in found


def test_numbers_without_a_value_and_changed_values_are_listed(paper):
    document, settings = paper / "paper.typ", paper / "paper.toml"
    assert main(["values", str(settings), "--check", str(document)]) == 0
    other = paper / "other.typ"
    text = (
        document.read_text("utf-8")
        + "\nLoss fell by $-0.25$ at $x^2$ after 300 steps. // 7 in a comment\n"
    )
    other.write_text(text, encoding="utf-8")
    lines = check_document(settings, other)
    assert [line.split(": ")[1].split()[0] for line in lines] == ["-0.25", "300"]
    text = (
        '#let a = 0.5\n#emph[3.1 #emph[by 41]] #figure(image("1.svg", width: 9cm), caption: [7.5])'
    )
    other.write_text(text, encoding="utf-8")
    lines = check_document(settings, other)
    assert [line.split(": ")[1].split()[0] for line in lines] == ["0.5", "3.1", "41", "7.5"]
    other.write_text('#word("norm", "layernrm") #mean("norm", "layernorm")', encoding="utf-8")
    assert ["layernorm" in line for line in check_document(settings, other)] == [True]
    accepted = (paper / "values.json").read_text()
    (paper / "values.json").write_text(accepted.replace("0.09537715597821839", "0.2"))
    changed = check_document(settings, document)
    (paper / "values.json").write_text(accepted)
    assert [line.split(": ")[1].split()[0] for line in changed] == [
        "norm/validation_loss/layernorm/change",
        "norm/validation_loss/layernorm/effect",
    ]


def test_latex_reads_names_and_signs_of_every_kind(small_study, fabricate, tmp_path):
    arms = {"baseline": {}, "50%{#}_a": {"set": {"model.embedding.norm": "layernorm"}}}
    study = small_study(seeds=[1, 2, 3, 4, 5], arms=arms)
    results = fabricate(study, lambda arm, seed: 2 + 0.01 * seed - (arm != "baseline") + seed**3e-4)
    settings, document = tmp_path / "paper.toml", tmp_path / "paper.tex"
    settings.write_text(f"[studies]\n'a#b' = '{results.path}'\n")
    write_values(settings)
    written = (tmp_path / "values.tex").read_text()
    names = re.findall(r"\\def\\csname (.*?)\\endcsname", written)
    assert "pv@p@a<23>b@50<25><7b><23><7d>_a@" in names
    assert not [name for name in names if re.search(r"[\\{}%#&$~^]", name)]
    assert re.search(r"pv@p@.*\{\$<\$ 0", written) and not re.search(r"\{< ", written)
    text = r"\section{Up 2.5}\label{s:1}\n\vspace{2cm}\footnote{By \textbf{8.1}, see \ref{s:1}}"
    document.write_text(text)
    found = [line.split(": ")[1].split()[0] for line in check_document(settings, document)]
    assert found == ["2.5", "8.1"]
    document.write_text(r"\pvalue{a<23>b}{50<25><7b><23><7d>_a} \word{a<23>b}{absent}")
    assert ["absent" in line for line in check_document(settings, document)] == [True]


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ("norm = 'nowhere'", "missing"),
        ("norm", "unreadable"),
        ("figures.f = { study = 'nrm', figure = 'forest' }", "unknown"),
        ("tables.t = { study = 'norm', table = 'primary', columns = ['arms'] }", "unknown"),
        ("pictures = {}", "value"),
    ],
)
def test_bad_settings_are_refused(tmp_path, settings, code):
    path = tmp_path / "paper.toml"
    studies = "" if settings.startswith("norm") else f"studies.norm = '{KEPT}'\n"
    path.write_text(studies + ("studies." if not studies else "") + settings)
    with refused(code):
        write_values(path)
