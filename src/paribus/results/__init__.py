"""Results folders of studies: layout, atomic writes, integrity checks, and tidy tables."""

from paribus.results.archive import archive
from paribus.results.controls import Control, check_controls
from paribus.results.extension import extend, extended
from paribus.results.look_record import append_look, looks_left, needed_trials, read_looks
from paribus.results.read import Results, load_results
from paribus.results.registration import (
    package_versions,
    read_registration,
    registration,
    settle,
    why_unregistered,
)
from paribus.results.store import ResultsFolder
from paribus.results.trial_folder import TrialFolder
