"""The text that a verdict's held-out scores are measured on."""

from __future__ import annotations

from collections.abc import Mapping

from paribus.results.heldout_part import purpose
from paribus.results.read import Results
from paribus.results.store import ResultsFolder


def awaits_heldout_part(results: Results) -> bool:
    """Return whether a test part is sealed and trials are not yet evaluated on it."""
    return (results.study.facts.seals_test or _seals_one(results)) and not results.judged.held


def chosen_on_judged_text(results: Results) -> bool:
    """Return whether the arms were tuned on the same text that judges them, with other seeds."""
    tuning = results.study.tuning
    return tuning is not None and bool(tuning.chosen) and not _seals_one(results)


def _unusual(results: Results, opened: Mapping[str, str]) -> str:
    """Return why scores of some trials are missing although the test part was opened."""
    if opened["purpose"] != purpose(results.study.name):
        return f"the sealed test part was read before its time, for '{opened['purpose']}'"
    return f"not every trial is evaluated on the test part, which was opened on {opened['opened']}"


def why_not_tested(results: Results) -> str:
    """Return why a finished study has no scores on its sealed test part. Empty if it has them,
    if a trial is missing, or if no test part is sealed."""
    if results.unfinished or not _seals_one(results) or results.judged.held:
        return ""
    if opened := ResultsFolder(results.path).read_opened():
        return f"{_unusual(results, opened)}; run the study again"
    return "the trials are not evaluated on the sealed test part yet; run the study again"


def _seals_one(results: Results) -> bool:
    return any(
        "test" in trial.get("data", {}).get("digests", {}) for trial in results.trials.values()
    )
