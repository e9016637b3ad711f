"""The schema number that every written file carries, and the table by which older files are read.

A file without a number is of schema 0: it was written before there were numbers. `MIGRATIONS` is
the one place where a name that a key once had is known. A study file (TOML) may use any spelling
there ever was. Digests are of the bytes that were sealed, so a file is never rewritten when it is
read; and a file of a later schema than ours is refused, for we cannot know what it says. Whoever
adds, renames or drops a key of a record raises `SCHEMA` by one and, where a reader needs it, adds a
row to the table.
"""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from paribus.comparison import Leniency
from paribus.errors import ParibusError

SCHEMA = 10  # of what is written now
KEY = "schema_version"
UNRECORDED = "unrecorded"  # of what an older record could not say

GATE = "stability_gate"
# The hypotheses of the commissioned studies, which were part of that rule until schema 2.
COMMISSIONED: tuple[dict[str, Any], ...] = (
    {
        "name": "H0",
        "statement": "normalising embeddings changes nothing worth having where training is stable "
        "without it",
        "endpoint": "macro_accuracy",
        "supported_by": ["row 4"],
        "contradicted_by": ["row 3", "row 5"],
    },
    {
        "name": "H1a",
        "statement": "it costs quality although it smooths training",
        "endpoint": "macro_accuracy",
        "supported_by": ["row 3", "row 7"],
        "contradicted_by": ["row 4", "row 5"],
    },
    {
        "name": "H1b",
        "statement": "where training is unstable without it, it cures that, perhaps at some cost",
        "supported_by": ["row 9", "row 9b", "row 11", "row 12"],
        "contradicted_by": ["row 2"],
    },
)


@dataclass(frozen=True)
class Migration:
    """A change that makes a file of a schema before `since` one of it.

    Attributes:
        since: the first schema that is written as `change` leaves it.
        file: the name of the file, `registration.json` for those that were superseded too.
        change: what is done to its value, in place or anew; returns it.
        of_records: whether it is of records alone. What a study file leaves out means what it means
            today; what a record leaves out means what it meant when it was written.
        note: what is said where a study file needs the change; empty for nothing.
    """

    since: int
    file: str
    change: Callable[[Any], Any]
    of_records: bool = False
    note: str = ""


def renamed(path: str, name: str) -> Callable[[Any], Any]:
    """Return a change: the last key of the dotted `path` is called `name` now. `*` is any key."""
    *tables, old = path.split(".")

    def change(value: Any) -> Any:
        for table in _tables(value, tables):
            if old in table:
                if name in table:
                    raise ParibusError(f"'{name}' and '{old}', its old name, are both stated")
                table[name] = table.pop(old)
        return value

    return change


def absent(path: str, value: Any) -> Callable[[Any], Any]:
    """Return a change: the last key of the dotted `path` is `value` where it is missing."""
    *tables, key = path.split(".")

    def change(whole: Any) -> Any:
        for table in _tables(whole, tables):
            table.setdefault(key, value)
        return whole

    return change


def moved(old: str, new: str) -> Callable[[Any], Any]:
    """Return a change: the dotted key `old` of a study is `new` now, in its arms and grids too."""
    *tables, name = old.split(".")
    *homes, key = new.split(".")

    def change(value: Any) -> Any:
        for table in _tables(value, tables):
            if name not in table:
                continue
            home = value
            for part in homes:
                home = home.setdefault(part, {}) if isinstance(home, dict) else None
            if not isinstance(home, dict):
                continue  # no table: what reads it says so
            if key in home:
                raise ParibusError(f"'{new}' and '{old}', its old name, are both stated")
            home[key] = table.pop(name)
        tuning = (["tuning", "grid"], ["tuning", "ranges"], ["tuning", "chosen", "*"])
        for path in (["arms", "*", "set"], *tuning):
            for table in _tables(value, path):
                if old in table and new in table:
                    raise ParibusError(f"'{new}' and '{old}', its old name, are both stated")
                if old in table:
                    table[new] = table.pop(old)
        return value

    return change


def dropped(path: str) -> Callable[[Any], Any]:
    """Return a change: the last key of the dotted `path` says nothing any more."""
    *tables, key = path.split(".")

    def change(value: Any) -> Any:
        for table in _tables(value, tables):
            table.pop(key, None)
        return value

    return change


def _several_arms(value: Any) -> Any:
    """Name the arms of a claim, which was of one."""
    for claim in _tables(value, ["claims", "values"]):
        if "arm" in claim:
            claim["arms"] = [claim.pop("arm")]
    return value


def _commissioned(study: Any) -> Any:
    """State the hypotheses that the rule `stability_gate` spoke to before studies declared them.

    A study that tunes another one has that rule and no verdict, and none of them.
    """
    if not isinstance(study, dict) or not {"arms", "endpoints"} <= study.keys():
        return study
    decision, endpoints = study.get("decision"), study["endpoints"]
    rule = decision.get("rule", GATE) if isinstance(decision, dict) else GATE
    if rule != GATE or str(study.get("name")).endswith("-tuning"):
        return study
    judged = {one.get("metric") for one in _tables(endpoints, []) if one.get("primary")}
    known = [one for one in COMMISSIONED if one.get("endpoint") in (None, *judged)]
    study.setdefault("hypotheses", copy.deepcopy(known))
    return study


def _speaking_verdicts(value: Any) -> Any:
    """Name what a verdict supports: it spoke to one commissioned hypothesis at most."""
    of = {one["name"]: one for one in COMMISSIONED}
    for verdict in _tables(value, ["verdicts"]):
        if "hypothesis" in verdict:
            name = verdict.pop("hypothesis")
            endpoint = of.get(name, {}).get("endpoint", verdict.get("metric"))
            is_meant = name in of and endpoint == verdict.get("metric")
            is_meant = is_meant and verdict.get("rule", GATE) == GATE
            verdict["supports"] = [name] if is_meant else []
    return value


def _without_idle_budgets(study: Any) -> Any:
    """Unset budgets that the rule never weighed: they were written whatever the rule."""
    decision = study.get("decision") if isinstance(study, dict) else None
    if isinstance(decision, dict) and decision.get("rule") == "equivalence":
        budgets = decision.keys() & {"calibration_budget", "throughput_budget"}
        decision |= dict.fromkeys(budgets)
    return study


def _without_idle_costs(value: Any) -> Any:
    """Say of a rule that weighs no cost that none is over its budget."""
    for verdict in _tables(value, ["verdicts"]):
        if verdict.get("rule") == "equivalence":
            for evidence in _tables(verdict, ["evidence"]):
                evidence["budget"] = "within"
    return value


def _independent_windows(value: Any) -> Any:
    """Say that windows of one text were taken as independent, where claims are about new items.

    Where they are not, nothing asks; what a study leaves out is the same there, old or new.
    """
    for inference in _tables(value, ["inference"]):
        of_new = inference.get("target") == "new items"
        inference.setdefault("windows", "independent" if of_new else "blocks")
    return value


def _without_questions(value: Any) -> Any:
    """Say of a trainer of the user's own, which asks no questions, that no claim is about them."""
    if isinstance(value, dict) and isinstance(value.get("trainer"), dict):
        for inference in _tables(value, ["inference"]):
            if inference.get("target") == "new questions":
                inference["target"] = "this item set"
    return value


def _without_idle_sensitivities(value: Any) -> Any:
    """Leave out the sensitivities of a tuning that had none."""
    for tuned in _tables(value, ["tuned"]):
        if tuned.get("sensitivities") == []:
            del tuned["sensitivities"]
    return value


def _redrawn_of_several_keys(value: Any) -> Any:
    """Name what "propagated" was where several keys were tuned."""
    for tuning in _tables(value, ["tuning"]):
        n_keys = sum(len(tuning.get(name) or ()) for name in ("grid", "ranges"))
        for inference in _tables(value, ["inference"]):
            if n_keys > 1 and inference.get("choice") == "propagated":
                inference["choice"] = "redrawn"
    return value


def _item_sums(value: Any) -> Any:
    """Say how a share of items is counted: it named the column of those that count, alone."""
    for metric in _tables(value, ["metrics", "*"]):
        if metric.get("items") == "correct":
            metric["items"] = {"total": "correct", "count": "predicted", "scale": 1.0, "step": 1}
    return value


def _tables(value: Any, path: list[str]) -> list[dict[str, Any]]:
    """Return the tables at `path` below `value`; a list stands for each of its entries."""
    if isinstance(value, list):
        return [table for one in value for table in _tables(one, path)]
    if not isinstance(value, dict):
        return []
    if not path:
        return [value]
    key, *rest = path
    inner = value.values() if key == "*" else [value[key]] if key in value else []
    return [table for one in inner for table in _tables(one, rest)]


MIGRATIONS: tuple[Migration, ...] = (
    # The rate that an arm is sensitive to is that of its tuning.
    Migration(1, "study.json", dropped("sweeps")),
    Migration(1, "study.json", moved("model.mlp_ratio", "model.mlp.ratio")),
    Migration(1, "study.json", moved("model.norm_eps", "model.norm.eps")),
    Migration(1, "study.json", _several_arms),
    # What the first studies were judged by, before there was a choice.
    Migration(1, "study.json", absent("inference.test", "gate"), of_records=True),
    Migration(1, "study.json", absent("decision.rule", GATE), of_records=True),
    Migration(2, "study.json", _commissioned, of_records=True),
    Migration(3, "study.json", _without_idle_budgets, of_records=True),
    # What was chosen by tuning was taken as given.
    Migration(4, "study.json", absent("inference.choice", "fixed"), of_records=True),
    Migration(4, "study.json", absent("inference.crossed", "bootstrap"), of_records=True),
    Migration(
        2,
        "study.json",
        renamed("arms.*.against", "reference"),
        note="`against` in an arm is read as `reference`, its name today: write that",
    ),
    # Which instructions PyTorch used was not recorded.
    Migration(1, "environment.json", absent("instructions", UNRECORDED), of_records=True),
    Migration(1, "registration.json", _item_sums),
    Migration(1, "trial.json", _item_sums),
    Migration(1, "analysis.json", _item_sums),
    # verdict.json was a bare list, which can carry no number.
    Migration(1, "verdict.json", lambda value: {"verdicts": value}),
    Migration(2, "verdict.json", _speaking_verdicts),
    Migration(2, "registration.json", dropped("own_rule.rule.rows.hypothesis")),
    Migration(3, "registration.json", _without_idle_budgets),
    Migration(4, "registration.json", absent("inference.choice", "fixed")),
    Migration(4, "registration.json", absent("inference.crossed", "bootstrap")),
    # The page has the words of the verdict.
    Migration(3, "registration.json", dropped("own_rule.rule.rows.why")),
    Migration(3, "verdict.json", dropped("verdicts.caveats")),
    Migration(3, "verdict.json", _without_idle_costs),
    Migration(6, "study.json", _independent_windows, of_records=True),
    Migration(6, "registration.json", _independent_windows),
    Migration(6, "registration.json", _without_questions),
    # Of several tuned keys there was none, whatever they were.
    Migration(6, "analysis.json", _without_idle_sensitivities),
    # Of several keys the best candidate was taken, and tuning seeds were redrawn.
    Migration(6, "study.json", _redrawn_of_several_keys, of_records=True),
    Migration(6, "registration.json", _redrawn_of_several_keys),
    Migration(10, "study.json", dropped("data.curriculum")),
    # Budgets in measured seconds and claims are gone.
    Migration(10, "study.json", dropped("claims")),
    Migration(10, "study.json", dropped("training.step_cost")),
    Migration(10, "trial.json", dropped("setting.training.step_cost")),
)


# What a file of schema 0 may lack, or say that is not said any more, by key; and what is null now
# where it had a number: p that are adjusted of fewer than five pairs, a correlation with what
# varies by rounding alone.
_OTHER_KEYS = {
    "analysis.json": {
        *("along", "censored", "in_bytes", "items_about", "later_stage", "of_pair", "text"),
        *("tuned", "untested", "sensitivities"),
    },
    "verdict.json": {"answer", "divergence", "elsewhere", "supports"},
    "registration.json": {"budgets", "first_stage_weight", "looks", "stages", "tuning"},
}
_NULL_NOW = {
    "analysis.json": {*("correlation", "equivalence_holm_p", "holm_p", "not_worse_holm_p")},
}
# What has been null since schema 3: of a cost whose budget no rule weighed, whether it is kept to.
_UNWEIGHED = {"analysis.json": {"state"}}
# Keys that came, or went, with a schema: what an older file lacks, or says and is not said now.
_CHANGED = {
    "analysis.json": {
        3: {"best_of", "family"},
        4: {"choice", "chosen"},
        5: {"both_texts", "reuse"},
        6: {"other_text", "sensitivities"},
        7: {"tuned_by_seed"},
        8: {"excluded", "more_flops", "more_parameters"},
        9: {"more_memory"},
        10: {"both_texts", "claim_checks"},
    },
    "verdict.json": {
        2: {"contradicts", "hypotheses"},
        3: {
            *("action", "adjusted_p", "cautions", "cost", "effect", "high", "low", "margin"),
            *("n", "p", "word"),
        },
        5: {"p_over_studies"},
        6: {"target", "text_error"},
        8: {"excluded", "needs", "pairs_why_not", "published", "secondary"},
    },
}
# What was null, or has been said in other words, before schema 8: what a text is too short to tell,
# seeds that would resolve what a rule decides, and cautions, which are more now.
_TOLD_NOW = {
    "analysis.json": ({"other_text"}, set[str]()),
    "verdict.json": ({"pairs_needed"}, {"cautions", "target"}),
}


def leniency(name: str, schema: int, words: Collection[str] = ()) -> Leniency:
    """Return what a file called `name` of that schema may say otherwise than one of today's.

    `words` are keys of its sentences, which older files may not have had.
    """
    since = [keys for of, keys in _CHANGED.get(name, {}).items() if schema < of]
    added = set[str]().union(*since)
    null = _UNWEIGHED.get(name, set()) if schema < 3 else set[str]()
    if schema < 8 and name in _TOLD_NOW:
        null, words = null | _TOLD_NOW[name][0], {*words, *_TOLD_NOW[name][1]}
    if schema:
        return Leniency(words, added, null)
    null |= _NULL_NOW.get(name, set())
    return Leniency(words, _OTHER_KEYS.get(name, set()) | added, null, open_words=True)


def stamped(value: dict[str, Any], schema: int = SCHEMA) -> dict[str, Any]:
    """`value` with the schema number in front, which schema 0 has not.

    Raises ParibusError where a key of its own takes the place.
    """
    if value.get(KEY, schema) != schema:
        raise ParibusError(f"'{KEY}' is the number of a file's schema; choose another name")
    return {KEY: schema, **value} if schema else value


def upgraded(name: str, value: Any, where: str, *, is_record: bool = True) -> tuple[Any, int]:
    """Return what a file called `name` says, in today's schema, and the schema that it is of.

    `where` is what errors call the file; `is_record` is False of a file that a person wrote. Raises
    ParibusError for a schema that we do not know.
    """
    schema = value.pop(KEY, 0) if isinstance(value, dict) else 0
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 0:
        raise ParibusError(f"{where}: {KEY} is {str(schema)[:40]!r}, and no number; restore it")
    if schema > SCHEMA:
        raise ParibusError(
            f"{where} has schema {schema}, and this paribus reads up to {SCHEMA}; read it with a "
            "newer one"
        )
    # Superseded registrations are numbered, and hold what the one in force does.
    file = re.sub(r"^registration-\d+\.json$", "registration.json", name)
    for migration in MIGRATIONS:
        is_meant = migration.file == file and migration.since > schema
        if is_meant and (is_record or not migration.of_records):
            before = copy.deepcopy(value) if migration.note and not is_record else None
            value = migration.change(value)
            if before is not None and value != before:
                logging.getLogger("paribus").warning("%s: %s", where, migration.note)
    return value, schema
