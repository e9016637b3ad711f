"""Sentences about the text that a verdict's held-out scores are of."""

from __future__ import annotations

from collections.abc import Mapping

from paribus.results.heldout_part import purpose
from paribus.results.read import Results
from paribus.results.registration import read_registration
from paribus.results.store import LEDGER, ResultsFolder


def awaits_heldout_part(results: Results) -> bool:
    """Return whether a test part is sealed, and trials are not evaluated on it yet."""
    return (results.study.facts.seals_test or _seals_one(results)) and not results.judged.held


def judged_text(results: Results) -> str:
    """Return a sentence about the text of the verdict's held-out scores; "" without a sealed
    part and without tuning on the validation text."""
    validation = "Held-out scores are of the validation text"
    if not _seals_one(results):
        tuning = results.study.tuning
        if tuning is None or not tuning.chosen:
            return ""
        return (
            f"{validation}, which chose the values of the arms too, on other seeds: no test part "
            "is sealed."
        )
    folder = ResultsFolder(results.path)
    opened = folder.read_opened()
    if opened is None:
        return f"{validation}: the test part is still sealed."
    if results.judged.held:
        registered = read_registration(folder) or {}
        later = registered.get("registered_at", "") > opened["opened"]  # of seeds that came since
        return (
            "Held-out scores are of the sealed test part of the text, which this study opened "
            f"once, on {opened['opened']}, when every trial "
            f"{'registered until then ' if later else ''}was finished.{_by_others(folder)}"
        )
    return f"{validation}: {_unusual(results, opened)}."


def _unusual(results: Results, opened: Mapping[str, str]) -> str:
    """Return why an opened test part has no scores of all trials."""
    if opened["purpose"] != purpose(results.study.name):
        return f"the sealed test part was read before its time, for '{opened['purpose']}'"
    return f"not every trial is evaluated on the test part, which was opened on {opened['opened']}"


def _by_others(folder: ResultsFolder) -> str:
    """Describe the ledger's answer: whether another study had opened the text before."""
    reuse = folder.read_sealed(LEDGER)
    if not reuse:
        return ""
    if not reuse["recorded"]:
        return " Whether other studies opened it before is not recorded."
    readers = "Other studies" if reuse["first"] else "No study in the ledger"
    return f" {readers} had opened it before."


def why_not_tested(results: Results) -> str:
    """Return why scores of a finished study are not of its sealed test part, which the verdict is
    of; empty where they are, a trial is missing, or no test part is sealed."""
    if results.unfinished or not _seals_one(results) or results.judged.held:
        return ""
    if opened := ResultsFolder(results.path).read_opened():
        return f"{_unusual(results, opened)}; run the study again"
    return "the trials are not evaluated on the sealed test part yet; run the study again"


def _seals_one(results: Results) -> bool:
    return any(
        "test" in trial.get("data", {}).get("digests", {}) for trial in results.trials.values()
    )
