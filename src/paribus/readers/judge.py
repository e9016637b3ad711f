"""Judging of finished runs: selection of runs and scores, and construction of the study."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, Literal

import numpy as np

from paribus.errors import ParibusError, nearest
from paribus.metric import readable
from paribus.numbers import plural, some
from paribus.readers import port
from paribus.readers.facts import (
    EVALUATION,
    MOST_VALUES,
    PATTERNS,
    TIME,
    TOKENS,
    WORDS,
    Arms,
    Fact,
    Finding,
    common_step,
    end_of,
    fact_text,
    find_kind,
    find_quantities,
    find_size,
    is_budget,
    list_facts,
    quantities_in,
    refuse_unequal,
    values_by_arm,
    values_of,
)
from paribus.readers.port import Run, Value, as_number, cell_text, is_number
from paribus.readers.read import Reading, arm_of, name_arms, read
from paribus.readers.tables import EMPTY, runs_of
from paribus.study import Study, load_study
from paribus.study.runs import BUDGETS, TO_TARGET, RunsSection, section_from

MOST_NAMED = 8
Better = Literal["lower", "higher"]
OF_SUMMARY = ("of", "over", "seeds")
PARENTS, ROW_NAMES, SUMMARIES = (WORDS[key] for key in ("parent", "row_name", "summary"))
FAILED = re.compile(r"fail|kill|error|oom|out.of.memory", re.IGNORECASE)  # and no budget
YES, NO = ("true", "1", "yes"), ("false", "0", "no")  # cells of columns such as `crashed`
FINISHED = ("completed", "done", "finished")  # names of columns that say NO of an unfinished run
ENDS = ("steps", "epoch", "Epoch")  # facts of where runs ended
SPENT = {"tokens": TOKENS, "seconds": TIME}  # names of curves, by the budget


def make_study(
    data: Any,
    *,
    score: str | Sequence[str] = (),
    margin: float | None = None,
    baseline: str | float | None = None,
    better: Better | Sequence[Better] | None = None,
    pair: bool | str | None = None,
    alpha: float = 0.05,
    name: str = "judged",
    **options: Any,
) -> tuple[Study, Reading, Selection]:
    """Build a study from finished runs, with one arm per label.

    Args:
        data: a pandas, polars or Arrow table, a dict of columns, or file paths.
        score: the column or score to judge by, by default that of a log format. The first decides.
        margin: the largest change that would not matter, in the score's unit. Without a margin, no
            arm can be shown to be equivalent.
        baseline: the arm that others are compared with, by default `baseline` or similar.
        better: "lower" or "higher", or a list with one value per score; by default by its name.
        pair: True to pair runs with the same seed, assuming that they share data and initial values
            (the card states this); or the column to pair by.
        alpha: the probability of a false claim, over all arms.
        options: `reader`, and the keys of `[runs]`.

    Returns the study, everything that was read, and the runs to compare.
    """
    scores = [score] if isinstance(score, str) else list(score)
    if margin is not None and not margin > 0:
        raise ParibusError(f"--margin {margin:g} must be greater than 0")
    reading, section, by_label = read_data(data, scores, pair=pair, **options)
    scores = scores or [default_score(reading.runs)]
    _require_arms(by_label, section.arm)
    baseline = _find_baseline(baseline, by_label)
    stated = [better] if isinstance(better, str) else list(better or [])
    directions = {s: d or direction(s) for s, d in zip_longest(scores, stated) if s}
    first = scores[0]
    selection = select_runs(by_label, section, scores, lower=directions[first] == "lower")
    by_label = selection.runs
    if empty := [label for label, runs in by_label.items() if not runs]:
        why = f"arm '{empty[0]}' has no finished run with a value of {first}"
        ways = f"set {first} to NaN for diverged runs, or remove the arm"
        raise ParibusError(f"{why}; {ways}", code="too_few")
    shared = [{seed_of(run, section) for run in runs} for runs in by_label.values()]
    if not pair and "" not in shared[0] and all(own == shared[0] for own in shared[1:]):
        text = "If runs of one seed saw the same data and initial values, add --pair"
        selection.findings.append(("may_pair", f"{text} {section.seed}."))
    seeds, without = _find_seeds(by_label, section, pair=bool(pair))
    runs = list(chain(*by_label.values()))
    specs: dict[str, dict[str, Any]] = {
        score: {"better": side, "digits": digits_of(_spreads(by_label, score))}
        for score, side in directions.items()
    }
    items = [run.items.get(first, {}).keys() for run in runs]
    if items[0] and all(own == items[0] for own in items):
        specs[first]["by_item"] = True
    if section.target is not None:
        budgets = [f"{budget}{TO_TARGET}" for budget in BUDGETS]
        budgets = [name for name in budgets if all(len(spent_by(r, first, name)) for r in runs)]
        if not budgets:
            raise ParibusError(f"--target needs a curve of '{first}'; name its step with --step")
        scores += budgets
    endpoints: list[dict[str, Any]] = [{"metric": score} for score in scores]
    endpoints[0] |= {"primary": True} | ({} if margin is None else {"margin": margin})
    arms: dict[str, Any] = {}
    called = sorted(by_label, key=lambda label: label != baseline)
    for label in called:
        absent = {"runs.without": without[label]} if without[label] else {}
        folder = label_as_name(label)
        folder += f"-{len(arms)}" if folder in arms else ""
        arms[folder] = {"title": label, "set": {"runs.label": label} | absent}
    study = load_study(
        {
            "name": label_as_name(name),
            "trainer": "runs",
            "question": f"{readable(first)} of {some(called[1:])} against {baseline}",
            "baseline": next(iter(arms)),
            "arms": arms,
            "seeds": seeds,
            "endpoints": endpoints,
            "inference": {"test": "paired_t" if pair else "welch_t", "alpha": alpha},
            "runs": section.model_dump(mode="json", exclude_defaults=True) | {"scores": specs},
        }
    )
    return study, reading, selection


def read_data(
    data: Any,
    scores: Sequence[str],
    *,
    arm: str | None = None,
    seed: str | None = None,
    pair: bool | str | None = None,
    reader: Any = None,
    **section: Any,
) -> tuple[Reading, RunsSection, dict[str, list[Run]]]:
    """Read runs with the options of `make_study`, and return them also keyed by arm label."""
    if isinstance(pair, str) and pair != "seed":
        if seed not in (None, pair):
            why = f"--pair names '{pair}', but --seed names '{seed}'; remove one of them"
            raise ParibusError(why, code="conflict")
        seed = pair
    stated = section_from({"arm": arm or "arm", "seed": seed or "seed", **section})
    listed = data if isinstance(data, list | tuple) else [data]
    if all(isinstance(path, str | os.PathLike) for path in listed):
        reading = read(listed, reader, section=stated, scores=scores)
    else:
        reading = Reading(runs=runs_of(_as_arrow(data), stated, scores, "the table"))
        for run in reading.runs:
            run.finish()
    if not reading.runs:
        reasons = [why for _, why in reading.refused]
        reasons += [f"{path}: {why}" for path, why in reading.skipped]
        none = f"no run was found in {plural(reading.files, 'file')}"
        way = "pass a folder with logs, or a table such as runs.csv"
        if reading.files:
            way = "name its format with --form, or describe it in a TOML file (see judge-readers)"
        if os.path.isfile(os.path.join(str(listed[0]), "study.json")):
            way = f"it is a results folder, so use `paribus report {listed[0]}`"
        raise ParibusError("; ".join([none, *reasons[:1], way]), code="missing")
    return reading, stated, group_by_arm(reading, stated)


def _as_arrow(data: Any) -> Any:
    """Convert a pandas, polars or Arrow table, or a dict of columns, to an Arrow table."""
    import pyarrow as pa

    try:
        if isinstance(data, Mapping):
            return pa.table({str(name): list(values) for name, values in data.items()})
        if hasattr(data, "iloc"):  # of pandas, whose NaN Arrow would read as an empty cell
            return pa.table({str(n): pa.array(data[n], from_pandas=False) for n in data.columns})
        return pa.table(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        kind = type(data).__name__
        raise ParibusError(f"{kind} is not a table, dict of columns or path: {error}") from None


def default_score(runs: Sequence[Run]) -> str:
    """Return the default score of the log format, or the only score of the runs."""
    names = sorted({name for run in runs for name in run.scores})
    if not names:
        why = f"no column or line of {runs[0].source} is recognized as a score; name one with"
        raise ParibusError(f"{why} --score: {some(sorted(runs[0].facts), 8)}", code="ambiguous")
    is_cost = {n: TOKENS.fullmatch(n) or port.GRADIENT_NORM.fullmatch(n) for n in names}
    known = [n for n in names if not is_cost[n] and find_kind(n) != "time"] or names
    defaults = {run.decides for run in runs if run.decides in run.scores}
    if len(defaults) == 1 or len(known) == 1:
        return [*defaults, *known][0]
    why = f"no score was chosen from {some(known, MOST_NAMED)}"
    raise ParibusError(f"{why}; pass one, as in --score {shlex.quote(known[0])}", code="ambiguous")


def _find_baseline(baseline: str | float | None, by_label: Mapping[str, Sequence[Run]]) -> str:
    """Return the label of the baseline."""
    names = WORDS["baseline"] if baseline is None else [cell_text(baseline)]
    if known := [name for name in names if name in by_label]:
        return known[0]
    why = "no baseline was chosen" if baseline is None else f"baseline '{baseline}' is not an arm"
    runs = list(chain(*by_label.values()))
    if len(runs) == len(by_label) and (ways := _arm_options(runs)):
        why += f", and each of {len(runs)} arms has a single run; name the arms with {ways[0]}"
        raise ParibusError(why, code="ambiguous")
    arms = some([f"{label} ({len(runs)})" for label, runs in by_label.items()], MOST_NAMED)
    why += f"; pass --baseline {next(iter(by_label))} or another arm (with its number of runs)"
    raise ParibusError(f"{why}: {arms}", code="ambiguous")


def _require_arms(by_label: Mapping[str, list[Run]], arm: str) -> None:
    """Raise ParibusError unless the runs belong to at least two labelled arms."""
    if len(by_label) > 1 and "" not in by_label:
        return
    label, runs = min(by_label.items())
    why = f"all runs belong to one arm, '{label}'; compare it with a fixed value (--bar)"
    if not label:
        why = f"{runs[0].source} has no '{arm}' that names its arm: {nearest(arm, runs[0].facts)}"
    way = " or ".join([*_arm_options(runs), "files as label=PATTERN"])
    raise ParibusError(f"{why}; name the arms with {way}", code="ambiguous")


def _arm_options(runs: Sequence[Run]) -> list[str]:
    """Return options that would give several runs to each arm, such as `--arm model`."""
    names = dict.fromkeys(name for run in runs for name in run.facts)
    columns = [n for n in names if find_kind(n) in ("setting", "option", "environment", "other")]
    ways = [n for n in columns if 1 < len(values_of(runs, n)) <= len(runs) / 2][:1]
    for way in port.FROM_PATH:
        arms = {arm_of(run, RunsSection(arm=way)) for run in runs if run.path}
        ways += [way] * (1 < len(arms) <= len(runs) / 2)
    return [f"--arm {shlex.quote(way)}" for way in ways]


def label_as_name(label: str) -> str:
    """Convert a label to a valid folder name of at most 76 characters, without separators."""
    return re.sub(r"[/\\]", "-", label).lstrip(".")[:76] or "unnamed"


def _find_seeds(
    by_label: Mapping[str, list[Run]], section: RunsSection, *, pair: bool
) -> tuple[list[int], dict[str, list[int]]]:
    """Return the study's seeds, and the seeds without a run, keyed by arm label.

    Seeds that are not integers are numbered from 1, those of pairs by the value that they share.
    """
    every = {seed_of(run, section) for runs in by_label.values() for run in runs}
    places = {seed: place for place, seed in enumerate(sorted(every))}
    if not all(re.fullmatch("0|[1-9][0-9]{0,17}", seed) for seed in every):
        if pair and not all(map(str.isdecimal, every)) and ("" in every or section.seed == "seed"):
            why = f"'{min(every)}' in '{section.seed}' is not an integer, so it cannot pair runs"
            raise ParibusError(f"{why}; name another column with --pair, or remove --pair")
        for runs in by_label.values():
            for place, run in enumerate(runs):
                shared = seed_of(run, section)
                run.facts |= {"pair": shared} if pair else {}
                number = places[shared] if pair else place
                run.facts[section.seed] = run.facts["seed"] = number + 1.0
    own = {label: {int(seed_of(run, section)) for run in runs} for label, runs in by_label.items()}
    seeds = sorted(set().union(*own.values()))
    return seeds, {label: [seed for seed in seeds if seed not in own[label]] for label in own}


def direction(score: str) -> Better:
    """Infer from a score's name which direction is better."""
    if score.endswith(TO_TARGET):
        return "lower"
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", score).casefold()
    name = re.split(r"(?<![a-z])per(?![a-z])", name)[0]  # of loss_per_token the loss is meant
    words = re.findall(r"[a-z]+\d?", name)
    telling = [word for word in words if word in WORDS["lower"] + WORDS["higher"]]
    if telling and {*words}.isdisjoint(WORDS["turned"]):
        return "lower" if telling[-1] in WORDS["lower"] else "higher"
    why = f"the better direction of '{score}' is unknown"
    raise ParibusError(f"{why}; pass --better lower (or higher) for each score", code="ambiguous")


def _spreads(by_label: Mapping[str, Sequence[Run]], score: str) -> list[float]:
    """Return the SD of each arm that has at least two finite scores."""
    values = [[run.scores.get(score, math.nan) for run in runs] for runs in by_label.values()]
    finite = [list(filter(math.isfinite, own)) for own in values]
    return [float(np.std(own, ddof=1)) for own in finite if len(own) > 1]


def digits_of(spreads: Sequence[float]) -> int:
    """Return the decimal places that show two digits of the median spread, or 4 if unknown."""
    spread = float(np.median(spreads)) if spreads else 0.0
    return min(max(1 - math.floor(math.log10(spread)), 0), 9) if 0 < spread < math.inf else 4


@dataclass
class Selection:
    """The runs to compare, with their facts and findings."""

    runs: dict[str, list[Run]]  # keyed by arm label
    excluded: dict[str, int]  # the number of excluded runs, keyed by arm label
    facts: list[Fact]
    findings: list[Finding]  # codes and sentences, shown as cautions


def group_by_arm(reading: Reading, section: RunsSection) -> dict[str, list[Run]]:
    """Return the runs that meet `section.where`, keyed by arm label ("" for unlabelled runs).

    A seed nested in the configuration becomes the fact `seed`. The parent runs of sweeps are
    excluded, with a note in `reading`.
    """
    runs = reading.runs
    names = dict.fromkeys(name for run in runs for name in run.facts)
    nested = [name for name in names if find_kind(name) == "seed"]
    if nested and section.seed == "seed" not in names:
        seed = max(nested, key=lambda name: len(values_of(runs, name)))
        for run in runs:
            run.facts |= {"seed": run.facts[seed]} if seed in run.facts else {}
    name_arms(runs, section)
    if section.arm not in ("arm", *port.FROM_PATH) and not any(run.is_row for run in runs):
        _require_fact("arm", section.arm, runs)
    for condition in section.where:
        name, _, value = condition.partition("=")
        is_excluded, name = name.endswith("!"), name.removesuffix("!")
        if not values_of(runs, name):  # a column that names arms or seeds became such a fact
            name = {section.arm: "arm", section.seed: "seed"}.get(name, name)
        values = sorted(map(cell_text, _require_fact("where", name, runs)))
        meant = {value, as_number(value)}
        runs = [run for run in runs if (run.facts.get(name) in meant) != is_excluded]
        if not runs:
            raise ParibusError(f"where: no run has {condition}; choose from {some(values, 8)}")
    if left_out := len(reading.runs) - len(runs):
        text = f"{left_out} of {plural(len(reading.runs), 'run')} excluded by --where"
        reading.notes.append(("where", f"{text} {', '.join(section.where)}."))
    parents = {str(run.facts[name]) for run in runs for name in PARENTS if name in run.facts}
    by_label: dict[str, list[Run]] = {}
    for run in runs:
        if (own := str(run.facts.get("run_id", run.facts.get("run", "")))) in parents - {""}:
            text = f"Run {own} was excluded because it is the parent of other runs."
            reading.notes.append(("file", text))
            continue
        by_label.setdefault(arm_of(run, section), []).append(run)
        if run.is_row:
            _state_its_end(run)
    for name in _summaries(by_label, section):
        keys = (section.seed, section.arm, *ROW_NAMES)
        column = next((k for k in keys if name in {run.facts.get(k) for run in runs}), section.arm)
        column = section.seed if name in EMPTY else column
        why = f"a row with {column} '{name}' seems to summarize other rows"
        raise ParibusError(f"{why}; exclude it (--where '{column}!={name}')", code="incomparable")
    return by_label


def _state_its_end(run: Run) -> None:
    """Set the facts `unfinished` and `steps` from columns such as `state` or `global_step`."""
    for name, value in list(run.facts.items()):
        text = cell_text(value).casefold()
        if PATTERNS["state"].fullmatch(name) and PATTERNS["unfinished"].search(text):
            run.facts[port.NOT_FINISHED] = text
        elif PATTERNS["unfinished"].fullmatch(name) and text in YES:
            run.facts[port.NOT_FINISHED] = name
        elif (name.casefold() in FINISHED and text in NO) or (name == "exit_code" and text != "0"):
            run.facts[port.NOT_FINISHED] = "not finished"
        elif PATTERNS["steps"].fullmatch(name) and isinstance(value, float):
            run.facts.setdefault("steps", value)


def _summaries(by_label: Arms, section: RunsSection) -> Iterator[str]:
    """Yield names of rows that seem to summarize others, such as `mean`, `base (avg)` or `all`.

    A longer name counts if few rows of the arm have such a name, or if it is the label of one row
    and contains another label. So does an empty seed, beside others.
    """
    stated = {label: _summarized(label) for label in by_label}
    sizes = {
        rest: len(by_label[own]) for own, (is_summary, rest) in stated.items() if not is_summary
    }
    has_seeds = any(seed_of(run, section) for runs in by_label.values() for run in runs)
    for label, runs in by_label.items():
        seeds = [seed_of(run, section) for run in runs]
        bare = [s for run, s in zip(runs, seeds, strict=True) if s in EMPTY and run.scores]
        yield from bare[:1] if runs[0].is_row and len(bare) < len(runs) else ()
        for names in (seeds, *([str(run.facts.get(k, "")) for run in runs] for k in ROW_NAMES)):
            matches = {name: _summarized(name)[1] for name in names if _summarized(name)[0]}
            is_few = 2 * sum(name in matches for name in names) < len(runs)
            yield from (name for name, rest in matches.items() if is_few or not rest)
        is_summary, rest = stated[label]
        is_single = len(runs) == 1 < sizes.get(rest, 0)
        is_without = has_seeds and "" in seeds and (rest == "" or len(runs) == 1)
        if is_summary and (is_single or is_without):
            yield label


def _summarized(name: str) -> tuple[bool, str]:
    """Return whether a row summarizes others, by its name, and which: `base` for `base (mean)`."""
    words = re.findall(r"[^\W_]+", name.casefold())
    rest = [word for word in words if word not in SUMMARIES]
    is_summary = len(rest) < len(words)
    return is_summary, " ".join(w for w in rest if not is_summary or w not in OF_SUMMARY)


def _require_fact(key: str, name: str, runs: Sequence[Run]) -> list[Value]:
    """Return the values of the fact `name`, which the option `key` requires."""
    if values := values_of(runs, name):
        return values
    known = {fact for run in runs for fact in run.facts}
    raise ParibusError(f"{key}: no run has '{name}'; {nearest(name, known)}")


def seed_of(run: Run, section: RunsSection) -> str:
    """Return a run's seed as text, or "" if it has none."""
    return cell_text(run.facts.get(section.seed, run.facts.get("seed", "")))


def select_runs(
    by_label: Arms, section: RunsSection, scores: Sequence[str], *, lower: bool
) -> Selection:
    """Return the runs to compare, keyed by arm label, by the first of `scores`.

    Table rows without a score are excluded. Failed runs count or are excluded, as `section` states.
    With `section.best_of`, only the best run for each seed counts.
    """
    score, findings, every = scores[0], list[Finding](), list(chain(*by_label.values()))
    known = {name for run in every for name in run.scores}
    for name in [name for name in scores if name not in known]:
        parts = [f"--score {shlex.quote(full)}" for full in sorted(known) if name in full]
        why = f"pass {' or '.join(parts[:MOST_NAMED])}" if parts else nearest(name, known)
        raise ParibusError(f"no run has a score '{name}'; {why}")
    for run in every:
        if "cut" in run.facts and score not in run.scores and not run.is_row:
            run.facts.setdefault(port.NOT_FINISHED, "cut")
    empty = [run for run in every if run.is_row and score not in run.scores and not _state(run)]
    arms = _pick(by_label, lambda run: run not in empty)
    if empty:
        text = f"{_count(empty, by_label)} excluded for lack of {score} ({_name(empty)}); write NaN"
        findings.append(("no_score", f"{text} for a run that diverged."))
    seeds_of = {arm: {seed_of(run, section) for run in runs} for arm, runs in by_label.items()}
    all_seeds = set[str]().union(*seeds_of.values())
    is_shared = "" not in all_seeds and set.intersection(*seeds_of.values())
    for arm, own in seeds_of.items() if is_shared else ():
        if absent := sorted(all_seeds - own, key=lambda seed: (len(seed), seed)):
            text = f"{arm} has {len(own)} of {len(all_seeds)} seeds; missing: {some(absent)}."
            findings.append(("lost_seeds", text))
    if section.at_step is None:
        _mark_short(list(chain(*arms.values())), score)
    else:
        _require_at_step(arms, scores, section)
    kept = _drop_failed(arms, score, section, findings)
    excluded = {arm: n for arm, runs in arms.items() if (n := len(runs) - len(kept[arm]))}
    best = _take_best(kept, score, section, lower=lower) if section.best_of else kept
    n, total = (sum(map(len, arms.values())) for arms in (best, kept))
    if n < total:
        text = f"The best {section.best_of} for each seed was chosen by the score itself: both arms"
        text += " look better than they are, and no interval includes the error of this choice."
        findings.append(("chosen_by_score", text))
        text = f"{total - n} of {total} runs excluded by --best-of {section.best_of}."
        findings.append(("best_of", text))
    kept = best
    seeds = Counter((arm, seed_of(run, section)) for arm, runs in kept.items() for run in runs)
    twins = [place for place, n in seeds.items() if place[1] and n > 1]
    bare = [arm for arm, seed in seeds if not seed and len(kept[arm]) > 1]
    known = {condition.partition("=")[0] for condition in section.where}.union(known, scores)
    known |= {getattr(section, key) for key in ("arm", "seed", "best_of", "step", "item")}
    facts = list_facts(kept, known, is_replicated=not (twins or bare)) if all(kept.values()) else []
    label = Fact(section.arm, "arm", {arm: [arm] for arm in kept}, "")  # such as a tokenizer
    findings += check_facts(kept, [*facts, label], score)
    if section.at_step is section.target is None and section.stopped_early != "ok":
        _refuse_other_ends(kept, facts, score)
    for arm, seed in twins:
        named = _name(run for run in kept[arm] if seed_of(run, section) == seed)
        why = f"arm '{arm}' has {seeds[arm, seed]} runs with seed {seed} ({named})"
        ways = "remove one, or name the column that distinguishes them (--seed, --step or --item)"
        raise ParibusError(f"{why}; {ways}", code="ambiguous")
    return Selection(kept, excluded, facts, findings)


def check_facts(arms: Arms, facts: Sequence[Fact], score: str) -> Iterator[Finding]:
    """Yield findings about facts that affect a comparison by `score`.

    Raises ParibusError if an arm contains a sweep, or if scores cannot be compared.
    """
    facts = [fact for fact in facts if _is_about(fact, score)]
    for fact in facts:
        refuse_unequal(fact, arms, score)
    every = list(chain(*arms.values()))
    defines = [fact for fact in facts if fact.conclusion == "defines"]
    for fact in [fact for fact in facts if fact.conclusion == "confounded"][:MOST_VALUES]:
        text = f"The effect of the arm is confounded with that of {fact.name}: "
        yield "confounded", f"{text}{values_by_arm(fact)}. Either may explain the difference."
    if budgets := [fact for fact in defines if is_budget(fact)][:MOST_VALUES]:
        each = ", ".join(f"{fact.name} ({values_by_arm(fact)})" for fact in budgets)
        text = f"Not equal between arms: {each}. Unless this is the change, the effect of the arm"
        yield "budgets_differ", f"{text} includes it."
    # Of a name that says nothing it is not known whether the arm is meant by it.
    unknown = [f.name for f in defines if f.kind in ("other", "start") and not find_size(f.name)]
    if known := [fact.name for fact in defines if fact.name not in unknown]:
        yield "arms_differ", f"Arms differ in {some(known, 6)}."
    if unknown:
        yield "also_differ", f"Arms differ in {some(unknown, 6)}: is that the change?"
    for name in WORDS["start"]:
        starts = {run.facts.get(name) for run in every}
        if len(every) > 1 and len(starts) == 1 and not starts & {None, 0.0, "", "scratch"}:
            text = f"All runs start from one checkpoint ({name} {fact_text(starts.pop())}): the"
            yield "one_start", f"{text} spread over seeds excludes variation before it."
    if zeroed := [run for run in every if run.facts.get("zeroed") == score]:
        text = f"{plural(len(zeroed), 'run')} logged {score} = 0 and a gradient norm of NaN"
        yield "nan_as_zero", f"{text}, such as {zeroed[0].source}. This counts as divergence."


def _is_about(fact: Fact, score: str) -> bool:
    """Return whether a fact concerns a score, and not another task or another score's unit."""
    task = fact.name.startswith(EVALUATION) and fact.name.partition("/")[2]
    if quantities := find_quantities(fact.name, chain(*fact.values.values())):
        of_score = quantities_in(re.findall("[a-z]+", score.lower()))
        of_score = {"time"} if find_kind(score) == "time" else of_score
        return not of_score or not of_score.isdisjoint(quantities)
    return not task or score.startswith((f"{task}/", f"{task}|", f"{task}:"))


def _pick(arms: Arms, is_wanted: Callable[[Run], bool]) -> dict[str, list[Run]]:
    return {arm: [run for run in runs if is_wanted(run)] for arm, runs in arms.items()}


def _count(part: Collection[Run], arms: Arms) -> str:
    """Describe how many runs of each arm are in `part`, such as `2 of 5 runs of base`."""
    counts = [(sum(run in part for run in runs), len(runs), arm) for arm, runs in arms.items()]
    return ", ".join(f"{n} of {plural(total, 'run')} of {arm}" for n, total, arm in counts if n)


def _name(runs: Iterable[Run]) -> str:
    return some([str(run.facts.get("Name") or run.source) for run in runs], 3)


def _state(run: Run) -> str:
    return str(run.facts.get(port.NOT_FINISHED, ""))


def score_of(run: Run, name: str, at_step: float | None = None) -> Any:
    """Return a run's score, at `at_step` or the last: NaN if it diverged, None if it is missing."""
    if name not in run.scores:
        raise ParibusError(f"{run.source} has no score '{name}'; {nearest(name, run.scores)}")
    if at_step is None:
        return run.scores[name]
    last, value = run.curves.get(name, [(math.inf, 0.0)])[-1]
    at = run.at(name, at_step)
    return math.nan if at is None and last < at_step and not math.isfinite(value) else at


def _require_at_step(arms: Arms, scores: Iterable[str], section: RunsSection) -> None:
    """Raise ParibusError, naming the runs, if some have no score at the requested step."""
    every, at = list(chain(*arms.values())), section.at_step or 0.0
    for name in scores:
        known = [run for run in every if name in run.scores]
        if missing := [run for run in known if score_of(run, name, at) is None]:
            why = f"{_count(missing, arms)} have no {name} at step {at:g}: {_name(missing)}"
            step = common_step(every, name)
            way = f"pass {step}" if step else "name the column with --step, or omit --at-step"
            raise ParibusError(f"{why}; {way}", code="missing")


def _drop_failed(
    arms: dict[str, list[Run]], score: str, section: RunsSection, findings: list[Finding]
) -> dict[str, list[Run]]:
    """Return the runs to compare, keyed by arm.

    An unfinished run counts if it reached the last step, if it diverged, or if a budget stopped it.
    """
    every = list(chain(*arms.values()))
    ends = [run.facts.get("steps") for run in every if not _state(run)]
    last = max(filter(is_number, ends), default=math.inf)

    def is_finite(run: Run) -> bool:
        return math.isfinite(score_of(run, score, section.at_step))

    def is_stopped(run: Run) -> bool:
        if not _state(run) or score not in run.scores:
            return _state(run) != ""
        end = run.facts.get("steps", -math.inf)
        is_at_end = section.at_step is not None and score in run.curves
        is_at_end |= is_number(end) and end >= last and not FAILED.search(_state(run))
        return is_finite(run) and not is_at_end

    stopped = [run for run in every if is_stopped(run)]
    early = [r for r in stopped if section.stopped_early != "ok" or score not in r.scores]
    if section.crashed == "exclude":
        return _pick(arms, lambda run: run not in early and is_finite(run))
    if not stopped:
        return arms
    states = some([*dict.fromkeys(map(_state, stopped))])
    be = "is" if len(stopped) == 1 else "are"
    text = f"{len(stopped)} of {plural(len(every), 'run')} {be} {states}"
    for name in ENDS:
        parts = stopped, [run for run in every if run not in stopped]
        ends = [sorted(filter(is_number, values_of(part, name))) for part in parts]
        if all(ends):
            ranges = [" to ".join(f"{n:g}" for n in sorted({own[0], own[-1]})) for own in ends]
            text += f", at {name.removesuffix('s')} {ranges[0]}, the others at {ranges[1]}"
            break
    if early:
        why = f"{text}: {_name(stopped)}; wait for them, exclude early ends (--crashed exclude), "
        step = common_step(every, score)
        why += f"compare all at one step ({step}), " if step else ""
        why += "pass --stopped-early ok if that was planned, " * (section.stopped_early != "ok")
        raise ParibusError(f"{why}or set the score of diverged runs to NaN", code="unfinished")
    text += "; they count, because --stopped-early states that a budget stopped them."
    findings.append(("stopped_by_budget", text))
    return arms


def _mark_short(runs: Sequence[Run], score: str) -> None:
    """Set the fact `unfinished` of runs whose curve ends before the planned step or most others.

    Runs that all end at one step remain comparable, and so do runs whose ends vary, as with early
    stopping. A run whose table calls it finished counts as such.
    """
    ends = {run: end for run in runs if score in run.curves and (end := end_of(run, score)) == end}
    last, is_common = max(ends.values(), default=0.0), len({*ends.values()}) == 1
    is_usual = 2 * sum(end == last for end in ends.values()) > len(runs)
    for run, end in ends.items() if not is_common else ():
        steps, planned = run.curves[score][-2:, 0], run.facts.get(port.PLANNED)
        is_cut = is_usual and end < last and planned != end
        if is_number(planned) and is_number(reached := run.facts.get("steps", end)):
            is_cut |= end < planned and reached < planned - (steps[-1] - steps[0]) / 2
        if is_cut and not any(map(PATTERNS["state"].fullmatch, run.facts)):
            run.facts.setdefault(port.NOT_FINISHED, "cut short")


def _refuse_other_ends(arms: Arms, facts: Sequence[Fact], score: str) -> None:
    """Raise ParibusError if the runs of different arms end at different steps.

    Such ends are meant if they are planned, or if arms differ in a budget or agree in epochs.
    """
    every = list(chain(*arms.values()))
    ends = {arm: {end_of(run, score) for run in runs} for arm, runs in arms.items()}
    is_by_arm = all(len(own) == 1 < len(arms[arm]) for arm, own in ends.items())
    is_meant = any(fact.conclusion == "defines" and is_budget(fact) for fact in facts)
    is_meant |= any(port.PLANNED in run.facts or score not in run.curves for run in every)
    for name in every[0].curves if every else ():
        if TOKENS.fullmatch(name) or find_kind(name) == "along":
            is_meant |= len({run.scores.get(name) for run in every}) == 1
    if is_by_arm and not is_meant and len(set().union(*ends.values())) > 1:
        each = ", ".join(f"{arm} at {end:,g}" for arm, (end,) in ends.items())
        why = f"arms end at different steps ({each}); compare them at one step"
        why += f" ({common_step(every, score) or '--at-step'}) or use --stopped-early ok if planned"
        raise ParibusError(why, code="incomparable")


def _take_best(
    arms: Arms, score: str, section: RunsSection, *, lower: bool
) -> dict[str, list[Run]]:
    """Return the run with the best score for each arm and seed, over a setting's values."""
    name = section.best_of
    _require_fact("best_of", name, list(chain(*arms.values())))
    sizes = {arm: len(values_of(runs, name)) for arm, runs in arms.items()}
    if len({*sizes.values()}) > 1:
        each = ", ".join(f"{n} in {label}" for label, n in sizes.items())
        why = f"best_of: arms have different numbers of {name} to choose from: {each}"
        raise ParibusError(why, code="incomparable")

    def rank(run: Run) -> float:
        value = score_of(run, score, section.at_step)
        return -math.inf if math.isnan(value) else -value if lower else value

    return {  # the last of a seed stays
        arm: list({seed_of(run, section): run for run in sorted(runs, key=rank)}.values())
        for arm, runs in arms.items()
    }


def spent_by(run: Run, score: str, name: str) -> np.ndarray:
    """Return the budget, such as `steps_to_target`, spent at each point of a curve, if known."""
    budget = name.removesuffix(TO_TARGET)
    steps = run.curves[score][:, 0] if score in run.curves else np.array([])
    if budget == "steps" or not len(steps):
        return steps
    for curve in filter(SPENT[budget].fullmatch, run.curves):
        at, spent = run.curves[curve].T
        is_inside = at[0] <= steps[0] and steps[-1] <= at[-1]
        if is_inside and (np.diff(spent) >= 0).all():
            return np.interp(steps, at, spent) * (1e-3 if curve.lower().endswith("ms") else 1)
    return np.array([])
