"""What a study is: frozen specification, arms as differences, TOML loading, what ships."""

from paribus.study.architecture import Embedding, Init, Model, Modules
from paribus.study.base import Spec
from paribus.study.curve import curve_steps
from paribus.study.custom_code import changed_sources, own_digests, own_parts
from paribus.study.data import CORPUS, Data
from paribus.study.explain import explain
from paribus.study.kept import changed_files
from paribus.study.load import (
    current_setting,
    load_study,
    parse_override,
    parse_study,
    read_sealed,
    shipped_studies,
)
from paribus.study.null_study import null_study
from paribus.study.precision import is_open, with_precision
from paribus.study.sections import (
    Arm,
    Claim,
    Claims,
    Decision,
    Endpoint,
    Evaluation,
    Hypothesis,
    Inference,
    Probes,
    Stability,
    Tasks,
)
from paribus.study.seed_plan import Plan
from paribus.study.spec import OF_FLOAT16, SMALLEST_SCALE, LossScale, Setting, Training
from paribus.study.study import LEARNING_RATE, Study, first_stage
from paribus.study.trust import (
    MEASURING,
    custom_code,
    measuring_parts,
    measuring_paths,
    measuring_record,
    require_trust,
    rule_record,
    step_code,
)
from paribus.study.tuning import Candidate, Tuning, at_edges, further_candidates
from paribus.study.tuning_study import at_rates, in_words, is_untuned, tuning_study, with_choice

__all__ = [
    "CORPUS",
    "LEARNING_RATE",
    "MEASURING",
    "OF_FLOAT16",
    "SMALLEST_SCALE",
    "Arm",
    "Candidate",
    "Claim",
    "Claims",
    "Data",
    "Decision",
    "Embedding",
    "Endpoint",
    "Evaluation",
    "Hypothesis",
    "Inference",
    "Init",
    "LossScale",
    "Model",
    "Modules",
    "Plan",
    "Probes",
    "Setting",
    "Spec",
    "Stability",
    "Study",
    "Tasks",
    "Training",
    "Tuning",
    "at_edges",
    "at_rates",
    "changed_files",
    "changed_sources",
    "current_setting",
    "curve_steps",
    "custom_code",
    "explain",
    "first_stage",
    "further_candidates",
    "in_words",
    "is_open",
    "is_untuned",
    "load_study",
    "measuring_parts",
    "measuring_paths",
    "measuring_record",
    "null_study",
    "own_digests",
    "own_parts",
    "parse_override",
    "parse_study",
    "read_sealed",
    "require_trust",
    "rule_record",
    "shipped_studies",
    "step_code",
    "tuning_study",
    "with_choice",
    "with_precision",
]
