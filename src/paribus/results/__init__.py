"""The record of a study: folder layout, atomic writes, integrity, controls, tidy tables."""

from paribus.results.controls import Control, TrialRecord, check_controls
from paribus.results.read import Results, load_results, write_tables
from paribus.results.registration import (
    PACKAGES,
    read_registration,
    registered_rule,
    registration,
    settle,
    why_unregistered,
)
from paribus.results.store import ResultsFolder
from paribus.results.trial_folder import TrialFolder

__all__ = [
    "PACKAGES",
    "Control",
    "Results",
    "ResultsFolder",
    "TrialFolder",
    "TrialRecord",
    "check_controls",
    "load_results",
    "read_registration",
    "registered_rule",
    "registration",
    "settle",
    "why_unregistered",
    "write_tables",
]
