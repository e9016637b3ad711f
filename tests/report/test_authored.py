"""Papers that people write: numbers are of the records, names exist, changes are told."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from paribus import numbers
from paribus.analysis import analyse
from paribus.cli import main
from paribus.errors import ParibusError
from paribus.report.paper import check, set_paper
from paribus.report.paper.authored import changed, read_source, render
from paribus.results import Results, load_results

from ..conftest import studies_in
from ..fabricated import write_results

SEEDS = [1, 2, 3, 4, 5]
BIB = "@misc{Known2020,\n  title = {Known},\n  author = {A. B},\n  year = {2020}\n}\n"
HEAD = """---
title: A paper
author: [A. Author]
bibliography: works.bib
studies: {one: one, two: two}
literal: [2020, "GPT-3"]
---
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two finished studies, `one` and `two`, and a bibliography."""
    home = tmp_path_factory.mktemp("authored")
    for name, effect in (("one", 0.3), ("two", 0.0)):
        study = studies_in(home)(
            name=name, title=f"Norms: {name}", seeds=SEEDS, question="Does it?"
        )

        def loss(arm: str, seed: int, effect: float = effect) -> float:
            noise = 0.002 * (seed * len(arm) % 5)
            return 2.5 + 0.01 * seed + (arm != "baseline") * (effect + noise)

        write_results(home / name, study, loss)
    (home / "works.bib").write_text(BIB)
    return home


@dataclass
class Wrote:
    """A paper with this text under HEAD, beside the studies."""

    path: Path

    def gives(self) -> str:
        source = read_source(self.path)
        return render(source, source.bound()).markdown.strip()


@pytest.fixture
def paper(home: Path) -> Callable[..., Wrote]:
    def write(text: str, head: str = HEAD) -> Wrote:
        path = home / "paper.md"
        path.write_text(head + text)
        (home / "paper.lock.json").unlink(missing_ok=True)
        return Wrote(path)

    return write


@pytest.fixture(scope="module")
def one(home: Path) -> Results:
    return load_results(home / "one")


def test_a_change_is_the_analysis_s(paper: Callable[..., Wrote], one: Results) -> None:
    contrast = analyse(one).contrast("layernorm", "validation_loss")
    says = contrast.decided
    ends = (says.mean, says.interval.low, says.interval.high)
    for options, digits in (("", 4), (", digits=3", 3)):
        call = f'change("one", "layernorm", "validation_loss"{options})'
        expected = numbers.delta(*ends, digits)
        assert f"{{{{ {call} }}}}" and paper(f"{{{{ {call} }}}}").gives() == expected.replace(
            "[", "\\["
        ).replace("]", "\\]")
    text = '{{ change("one", "layernorm") }}'
    assert paper(text, HEAD.replace("literal", "digits: 2\nliteral")).gives().startswith("+0.3")
    assert paper('{{ change("one", "layernorm", interval=False) }}').gives() == numbers.signed(
        says.mean, 4
    )


WITH_OURS = HEAD.replace("literal", "numbers: {ours: ours.json}\nliteral")
OURS = {"n": 1200, "share": 0.68, "gain": [-0.1234, -0.2, 0.05], "said": "half", "bad": [1, 2]}


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ('"n"', "1,200"),
        ('"share"', "0.68"),
        ('"share", digits=1', "0.7"),
        ('"gain"', "−0.123 [−0.200, +0.050]"),  # noqa: RUF001
        ('"gain", digits=1, interval=False', "−0.1"),  # noqa: RUF001
        ('"said"', "half"),
    ],
)
def test_own_numbers_bind(paper: Callable[..., Wrote], home: Path, call: str, given: str) -> None:
    (home / "ours.json").write_text(json.dumps(OURS))
    wrote = paper(f'It is {{{{ number("ours", {call}) }}}}.', WITH_OURS)
    assert wrote.gives() == f"It is {given}.".replace("[", r"\[").replace("]", r"\]")
    assert check(wrote.path) == []


def test_changes_are_told(paper: Callable[..., Wrote], capsys: pytest.CaptureFixture[str]) -> None:
    text = '{{ seeds("one") }} {{ table("one", "primary") }}'
    wrote = paper(text)
    assert main(["paper", "--check", str(wrote.path)]) == 0  # nothing was set yet
    assert main(["paper", str(wrote.path)]) == 0
    assert wrote.path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    source = read_source(wrote.path)
    lock = json.loads(source.lock.read_text())
    assert lock["values"]["seeds(one)"] == "5"
    assert main(["paper", "--check", str(wrote.path)]) == 0
    lock["values"]["seeds(one)"] = "4"
    lock["values"]["table(one, primary)"] = "0"
    source.lock.write_text(json.dumps(lock))
    capsys.readouterr()
    assert main(["paper", "--check", str(wrote.path)]) == 1
    told = capsys.readouterr().out
    assert "seeds(one) was 4, is 5" in told and "table(one, primary) was 0" in told
    assert main(["paper", str(wrote.path)]) == 0  # says so once more, and keeps what is so now
    assert "seeds(one) was 4, is 5" in capsys.readouterr().out
    assert list(changed(source, {"seeds(one)": "5"})) == []
    source.lock.write_text("[]")
    with pytest.raises(ParibusError, match="delete it"):
        check(wrote.path)


FULL = """
# Abstract

It is {{ change("one", "layernorm") }} [@Known2020].

# Results {#sec-results}

{{ ref("tbl-changes") }} and {{ ref("fig-changes") }} show it; by $x^y$, \\*as is\\*.

{{ table(["one", "two"], "changes") }}

{{ table(["one", "two"], "designs") }}

{{ figure(["one", "two"], "changes") }}

{{ figure("one", "loss-curves", width=0.5) if false }}

{{ figure("one", "forest", caption="An own *caption*.", label="fig-own") }}

{{ table("one", "endpoints", arms=["layernorm"], columns=["arm", "seeds"], caption="Own.") }}

![A picture](own.svg)

"""


def test_a_whole_paper_is_set(paper: Callable[..., Wrote], home: Path) -> None:
    (home / "own.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><path d="M0 0h9v9z"/></svg>'
    )
    wrote = paper(FULL)
    pdf = home / "out.pdf"
    set_paper(wrote.path, pdf)
    first = pdf.read_bytes()
    set_paper(wrote.path, pdf)
    assert first.startswith(b"%PDF") and pdf.read_bytes() == first
    assert check(wrote.path) == []
    if shutil.which("pdftotext"):
        text = subprocess.run(
            ["pdftotext", pdf, "-"], capture_output=True, text=True, check=True
        ).stdout
        assert "An own caption" in text and "*as is*" in text


def test_a_study_that_is_not_finished_is_refused(
    paper: Callable[..., Wrote], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = studies_in(tmp_path)(seeds=[1, 2])
    write_results(tmp_path / "r", study, lambda arm, seed: 2.0, skip=[("rmsnorm", 2)])
    head = f"---\nstudies: {{one: {tmp_path / 'r'}}}\n---\n"
    assert main(["paper", "--check", str(paper("{{ seeds('one') }}", head).path)]) == 2
    assert "rmsnorm/seed-2" in capsys.readouterr().err
