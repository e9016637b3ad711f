"""Papers that people write: numbers are of the records, names exist, changes are told."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from paribus import numbers
from paribus.analysis import analyse
from paribus.cli import main
from paribus.decision import decide
from paribus.errors import ParibusError
from paribus.report.paper import check, set_paper
from paribus.report.paper.authored import changed, literals, read_source, render
from paribus.report.paper.bound import escaped
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


def test_any_two_arms_are_compared(paper: Callable[..., Wrote], one: Results) -> None:
    rows = one.scores.to_pylist()
    ours, theirs = (
        [row["validation_loss"] for row in rows if row["arm"] == arm]
        for arm in ("rmsnorm", "layernorm")
    )
    found = stats.ttest_rel(ours, theirs)
    low, high = found.confidence_interval(0.95)
    told = numbers.delta(float(np.mean(np.subtract(ours, theirs))), low, high, 4)
    call = '("one", "rmsnorm", against="layernorm")'
    assert paper(f"{{{{ change{call} }}}}").gives() == escaped(told)
    assert paper(f"{{{{ p{call} }}}}").gives() == f"p {numbers.p_equals(found.pvalue)}"
    plain, same = (
        '{{ change("one", "rmsnorm") }}',
        '{{ change("one", "rmsnorm", against="baseline") }}',
    )
    assert paper(plain).gives() == paper(same).gives()
    with pytest.raises(ParibusError, match="compared with itself"):
        paper('{{ change("one", "rmsnorm", against="rmsnorm") }}').gives()


def test_other_values_are_the_records(paper: Callable[..., Wrote], one: Results) -> None:
    analysis = analyse(one)
    contrast, summary = (
        of("layernorm", "validation_loss") for of in (analysis.contrast, analysis.summary)
    )
    verdict = decide(analysis)[0]
    for call, expected in {
        'value("one", "layernorm")': numbers.fixed(summary.mean, 4),
        'value("one", "layernorm", sd=True)': numbers.mean_sd(summary.mean, summary.sd, 4),
        'p("one", "layernorm")': f"p {numbers.p_equals(contrast.tested_p)}",
        'p("one", "layernorm", adjusted=False)': f"p {numbers.p_equals(contrast.p)}",
        'value("one", "layernorm", seed=3)': numbers.fixed(summary.values[3], 4),
        'outcome("one", "layernorm")': verdict.outcome,
        'margin("one")': "±0.02",
        'seeds("one")': "5",
        'seeds("one", "layernorm")': "5",
        'events("one", "baseline")': "0 of 5",
        'parameters("one")': "12,345",
        'setting("one", "training.iterations")': "8",
        'setting("one", "training.optimizer.learning_rate", digits=1)': "3e-4",
        'setting("one", "training.optimizer.learning_rate", digits=1, per=0.001)': "0.3",
        'setting("one", "model.embedding.norm", "rmsnorm")': "rmsnorm",
        'root("one")': one.root,
    }.items():
        given = re.sub(r"\\(.)", r"\1", paper(f"{{{{ {call} }}}}").gives()).replace("−", "-")  # noqa: RUF001
        assert given.startswith(expected), call


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


def test_changed_own_numbers_told(paper: Callable[..., Wrote], home: Path, tmp_path: Path) -> None:
    wrote = paper('It is {{ number("ours", "n") }}.', WITH_OURS)
    (home / "ours.json").write_text(json.dumps(OURS))
    set_paper(wrote.path, tmp_path / "a.pdf")
    assert check(wrote.path) == []
    (home / "ours.json").write_text(json.dumps(OURS | {"n": 7}))
    assert ["was 1,200, is 7" in line for line in check(wrote.path)] == [True]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ('"ours", "no"', "no number 'no'"),
        ('"ours", "bad"', "neither a number"),
        ('"mine", "n"', "no file of numbers 'mine'"),
    ],
)
def test_own_number_missing(paper: Callable[..., Wrote], home: Path, call: str, says: str) -> None:
    (home / "ours.json").write_text(json.dumps(OURS))
    with pytest.raises(ParibusError, match=says):
        paper(f"{{{{ number({call}) }}}}", WITH_OURS).gives()


def test_an_arm_and_a_metric_go_by_either_name(paper: Callable[..., Wrote]) -> None:
    calls = ('"layernorm", "validation_loss"', '"layernorm", "validation loss"', '"layernorm"')
    assert len({paper(f'{{{{ change("one", {call}) }}}}').gives() for call in calls}) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{{ change("on", "layernorm") }}', "paper.md:8: the paper names no study 'on'"),
        ('\n{{ change("one", "layrnorm") }}', "paper.md:9: one: no arm 'layrnorm': did you mean"),
        ('{{ value("one", "baseline", "los") }}', "no metric 'los'"),
        ('{{ change("one", "baseline") }}', "compared with no other arm"),
        ('{{ chnge("one") }}', "did you mean 'change'?"),
        ('{{ change("one", "layernorm" }}', "paper.md:8:"),
        ("{{ change() }}", "missing"),
        ('{{ table("one", "primry") }}', "did you mean 'primary'?"),
        ('{{ table("one", "primary", columns=["x"]) }}', "no column 'x'"),
        ('{{ table(["one", "two"], "arms") }}', "of one study, not of 2"),
        ('{{ figure("one", "forst") }}', "did you mean 'forest'?"),
        ('{{ ref("tbl-none") }}', "ref('tbl-none')"),
        ('{{ setting("one", "model.width") }}', "no setting 'model.width'"),
        ("\nAs was known [@Unknown2020].", "paper.md:9: @Unknown2020 is not in"),
        ('{{ change("one", "layernorm")', "paper.md:8: braces that cannot be read"),
        ('{{ value("one", "baseline", digits=-1) }}', "paper.md:8: value: digits = -1 must be"),
        ('{{ value("one", "baseline", digits="2") }}', "digits = '2' must be"),
        ('{{ figure("one", "forest", width=5) }}', "paper.md:8: figure: width = 5 must be"),
        ('{{ value("one", arms="x") }}', "value takes study, arm"),
        ('{{ "".__class__ }}', "paper.md:8"),
    ],
)
def test_a_name_that_does_not_exist_is_one_line(
    paper: Callable[..., Wrote], capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    wrote = paper(text)
    for arguments in (["--check"], []):
        assert main(["paper", str(wrote.path), *arguments]) == 2
        error = capsys.readouterr().err
        assert says in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("head", "says"),
    [
        ("", "no front matter"),
        ("---\ntitle: [\n---\n", "no YAML"),
        ("---\n- a\n---\n", "table"),
        ("---\ntitle: a\n---\n\nSo it is [@Known2020].", "paper.md:5: @Known2020 is cited"),
        ("---\ndigits: 99\n---\n", "digits"),
        ("---\nstudis: {}\n---\n", "did you mean 'studies'?"),
        ("---\nstudies: [one]\n---\n", "studies"),
        ("---\nstudies: {gone: gone}\n---\n{{ seeds('gone') }}", "gone"),
    ],
)
def test_a_front_matter_that_is_none(
    paper: Callable[..., Wrote], capsys: pytest.CaptureFixture[str], head: str, says: str
) -> None:
    assert main(["paper", "--check", str(paper("", head).path)]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It gained 0.05 in 3 runs, 12,000 tokens, -2% and 1e-4.", ["0.05", "3", "12,000", "-2%"]),
        ("In 2020 GPT-3 came; GPT-4 did not.", ["4"]),
        ("bfloat16, H1 and x_2 are names", []),
        ("`code 5` [@Known2020, p. 7] <!-- 8 --> [text](a9.png) https://a.b/10", []),
        ("1. One\n2. Two {#sec-3 width=40%}\n", []),
        ("# Part 4\n\n| a | 5 |\n", ["4", "5"]),
        ("$x = 7$ and `8`{=typst}", ["7", "8"]),
        ("```\n1 2 3\n```\n", []),
        ('{{ change("one", "layernorm", digits=3) }}{% set x = 4 %}', []),
        ("The year 20201 and 2020.5 are others.", ["20201", "2020.5"]),
        ("It was x61 on an H100", ["x61"]),
        ('{{ table("one", digits=3, caption="By\n0.4 of 7") }}', ["0.4", "7"]),
    ],
)
def test_literals_are_found(paper: Callable[..., Wrote], text: str, found: list[str]) -> None:
    told = list(literals(read_source(paper(text).path)))
    numbers_ = [re.findall(r": (\S+) is bound to nothing", line)[0] for line in told]
    assert numbers_[: len(found)] == found and bool(numbers_) == bool(found)


def test_braces_are_no_way_around_the_check(paper: Callable[..., Wrote]) -> None:
    assert check(paper("It is {{ 0.05 }}.").path)
    assert check(paper("---\n\n{{ seeds('one') }}").path) == []


def test_a_label_may_be_made_by_a_loop(paper: Callable[..., Wrote]) -> None:
    text = '{{ ref("fig-b") }}: {% for x in ["b"] %}![Text](a.png){#fig-{{ x }}}{% endfor %}'
    assert check(paper(text).path) == []


def test_the_title_is_checked(paper: Callable[..., Wrote]) -> None:
    told = list(literals(read_source(paper("Text.", HEAD.replace("title: ", "title: 12% ")).path)))
    assert ["title: 12%" in one for one in told] == [True]


def test_the_abstract_is_checked_and_filled_too(paper: Callable[..., Wrote]) -> None:
    head = HEAD.replace("literal", "abstract: \"By 0.7: {{ seeds('one') }} seeds.\"\nliteral")
    source = read_source(paper("Text.", head).path)
    assert "abstract: 0.7" in next(literals(source))
    assert render(source, source.bound()).abstract == "By 0.7: 5 seeds."


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


def test_words_of_a_study_are_no_markup(tmp_path: Path) -> None:
    evil = "#panic() $x$ *b* @LeScao2022 <label> \\ [a](b) `c` {{ d }} | e"
    arms = {"baseline": {}, "x": {"title": evil, "set": {"model.embedding.norm": "layernorm"}}}
    study = studies_in(tmp_path)(arms=arms, title=evil, question=evil, seeds=[1, 2])
    write_results(tmp_path / "r", study, lambda arm, seed: 2.0 + seed / 100)
    text = HEAD.replace("one: one, two: two", "one: r").replace("bibliography: works.bib\n", "")
    (tmp_path / "p.md").write_text(
        text + '{{ table("one", "arms") }} {{ figure("one", "forest") }}\n'
    )
    set_paper(tmp_path / "p.md", tmp_path / "p.pdf")
    source = read_source(tmp_path / "p.md")
    text = render(source, source.bound()).markdown
    assert "\\#panic() \\$x\\$ \\*b\\* \\@LeScao2022 \\<label\\>" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{home}/one"], "is a folder"),
        ([], "paper needs SOURCE"),
        (["{home}/none.md"], "does not exist"),
        (["{home}/paper.md", "-o", "{home}/x.txt"], "ends in .pdf"),
    ],
)
def test_what_is_asked_wrongly_is_one_line(
    paper: Callable[..., Wrote],
    home: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    paper("Text.")
    assert main(["paper", *(one.format(home=home) for one in arguments)]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


def test_a_study_that_is_not_finished_is_refused(
    paper: Callable[..., Wrote], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = studies_in(tmp_path)(seeds=[1, 2])
    write_results(tmp_path / "r", study, lambda arm, seed: 2.0, skip=[("rmsnorm", 2)])
    head = f"---\nstudies: {{one: {tmp_path / 'r'}}}\n---\n"
    assert main(["paper", "--check", str(paper("{{ seeds('one') }}", head).path)]) == 2
    assert "rmsnorm/seed-2" in capsys.readouterr().err


def test_error_rates_of_a_null_study(paper: Callable[..., Wrote], home: Path) -> None:
    rate: dict[str, Any] = {
        "name": "any claim",
        "nominal": 0.05,
        "rate": 0.025,
        "interval": {"low": 0, "high": 0.1},
    }
    (home / "null").mkdir(exist_ok=True)
    (home / "null" / "null.json").write_text(json.dumps({"rates": [rate]}))
    head = HEAD.replace("two: two", "two: two, null: 'null'").replace("null:", '"null":')
    text = '{{ error_rate("null", "any claim") }}'
    given = paper(text, head).gives()
    assert given == "2.5%"
