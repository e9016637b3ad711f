"""Tables of the data: what corpus and splits hold, what trials consumed, duplicates, leakage."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from paribus.report.figures import names
from paribus.report.tables import Table
from paribus.results import Results

TIMES_SEEN = 3  # training tokens seen so often or more are counted together
SPLITS = {"corpus": "corpus", "train": "training split", "validation": "validation split"}


def data_tables(results: Results) -> list[Table]:
    """Every table that the records have."""
    found = [token_classes(results), coverage(results), duplicates(results)]
    found += [leakage_by_arm(results), consumed_by_source(results)]
    return [table for table in found if table is not None]


def token_classes(results: Results) -> Table | None:
    """Shares of token classes in corpus and splits, and in what each arm's trials consumed."""
    called, rows = names(results.study), []
    recorded: dict[str, dict[str, int]] = results.data.get("token_classes", {})
    counts: dict[str, dict[str, int]] = {
        SPLITS.get(split, split): classes for split, classes in recorded.items()
    }
    for row in results.sampling.to_pylist():
        if row["kind"] == "token class":
            of_arm = counts.setdefault(f"consumed: {called[row['arm']]}", defaultdict(int))
            of_arm[row["part"]] = of_arm.get(row["part"], 0) + row["tokens"]
    if not counts:
        return None
    classes = list(dict.fromkeys(part for parts in counts.values() for part in parts))
    for source, parts in counts.items():
        tokens = sum(parts.values())
        shares = [_percent(parts.get(part, 0), tokens) for part in classes]
        rows.append((source, f"{tokens:,}", *shares))
    return Table(
        "token-classes",
        "Tokens by class, per cent: of the text, and of the targets that the trials of each arm "
        "consumed, all seeds together.",
        ("where", "tokens", *classes),
        tuple(rows),
        frozenset({"where"}),
        wide=True,
    )


def coverage(results: Results) -> Table | None:
    """How much of the training split was seen how often, averaged over an arm's seeds."""
    called = names(results.study)
    groups: dict[str, dict[int, int]] = {}
    for row in results.sampling.to_pylist():
        if row["kind"] == "times seen":
            counts = groups.setdefault(called[row["arm"]], defaultdict(int))
            counts[min(int(row["part"]), TIMES_SEEN)] += row["tokens"]
    if not groups:
        return None
    rows = []
    for arm, counts in groups.items():
        tokens = sum(counts.values())
        shares = [_percent(counts.get(times, 0), tokens) for times in range(TIMES_SEEN + 1)]
        rows.append((arm, *shares))
    return Table(
        "coverage",
        "Training tokens by how often a trial had them as a target, per cent, averaged over seeds.",
        ("arm", "never", "once", "twice", f"{TIMES_SEEN} times or more"),
        tuple(rows),
    )


def duplicates(results: Results) -> Table | None:
    """Exact and near duplicates, and what of the validation split training has as well."""
    found: dict[str, Any] = results.data.get("duplicates", {})
    if not found:
        return None
    keys = ("units", "exact", "near", "validation_units", "leaked_exact", "leaked_near")
    rows = [
        (f"{kind}s", *(f"{counts.get(key, 0):,}" for key in keys)) for kind, counts in found.items()
    ]
    leakage, rules = results.data.get("leakage", {}), results.data.get("rules", {})
    caption = "Duplicates in the corpus, and validation units that training has too."
    if rules:
        caption += (
            f" Near: Jaccard similarity of at least {rules['near_duplicate_jaccard']:g} between "
            f"sets of {rules['shingle_characters']} characters."
        )
    if leakage:
        whose = "the shared training text" if results.data.get("arms") else "the training text"
        caption += (
            f" {leakage['in_training']:,} of {leakage['validation_tokens']:,} validation tokens "
            f"lie in a run of {rules.get('run_tokens', 0)} tokens that {whose} has word for word."
        )
    looked_at = results.data.get("looked_at", {})
    if looked_at and looked_at["duplicates"] < looked_at["tokens"]:
        caption += (
            f" Of the {looked_at['tokens']:,} tokens, {looked_at['duplicates']:,} in blocks at "
            "even distances were looked at."
        )
    head = (
        "units",
        "in all",
        "exact copies",
        "near copies",
        "in validation",
        "of these exact in training",
        "near in training",
    )
    return Table("duplicates", caption, head, tuple(rows), frozenset({"units"}), wide=True)


def leakage_by_arm(results: Results) -> Table | None:
    """What of the held-out text stands in the training text of each arm that reads its own."""
    described: dict[str, Any] = results.data.get("arms", {})
    called, rows = names(results.study), []
    for arm, of_arm in described.items():
        leakage = of_arm.get("leakage")
        if arm in called and leakage:
            counts = leakage["in_training"], leakage["validation_tokens"]
            rows.append((called[arm], f"{counts[0]:,}", f"{counts[1]:,}", _percent(*counts)))
    if not rows:
        return None
    return Table(
        "leakage",
        "Validation tokens in a run that the training text has word for word, of arms that read "
        "another text than is shared.",
        ("arm", "in training", "validation tokens", "per cent"),
        tuple(rows),
    )


def consumed_by_source(results: Results) -> Table | None:
    """What the trials of each arm with a mixture consumed of every source, all seeds together."""
    called, sums = names(results.study), {}
    for (arm, _), trial in results.trials.items():
        sources = trial["consumed"].get("sources", {})
        for name, of in sources.items() if len(sources) > 1 else ():
            total = sums.setdefault((arm, name), defaultdict(int))
            for key, count in of.items():
                total[key] += count
    if not sums:
        return None
    windows: dict[str, int] = defaultdict(int)
    for (arm, _), of in sums.items():
        windows[arm] += of["windows"]
    rows = [
        (
            called[arm],
            name,
            *(f"{of[key]:,}" for key in ("windows", "tokens", "bytes")),
            _percent(of["windows"], windows[arm]),
        )
        for (arm, name), of in sums.items()
    ]
    return Table(
        "sources",
        "What was consumed of each source, all seeds together.",
        ("arm", "source", "windows", "tokens", "bytes", "per cent of windows"),
        tuple(rows),
        frozenset({"arm", "source"}),
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f}" if whole else "0.00"
