"""What a study is: arms as differences, endpoints, seeds, rule; TOML loading, what ships."""

from paribus.explain import explain
from paribus.study.base import Spec
from paribus.study.custom_code import changed_sources, own_digests
from paribus.study.kept import changed_files
from paribus.study.load import (
    load_study,
    parse_override,
    parse_study,
    read_study,
    shipped_groups,
    shipped_studies,
)
from paribus.study.null_study import null_name, null_study, tuned_null_studies
from paribus.study.sections import (
    Arm,
    Decision,
    Endpoint,
    Hypothesis,
    Inference,
    Interaction,
    Stability,
)
from paribus.study.seed_plan import Plan
from paribus.study.study import LEARNING_RATE, Study, first_stage
from paribus.study.trust import (
    MEASURING,
    custom_code,
    measuring_record,
    require_trust,
    rule_record,
    step_code,
)
from paribus.study.tuning import (
    Candidate,
    Tuning,
    at_edges,
    open_edges,
)
from paribus.study.tuning_study import (
    at_rates,
    in_words,
    is_untuned,
    tuning_study,
    with_choice,
)

__all__ = [
    "LEARNING_RATE",
    "MEASURING",
    "Arm",
    "Candidate",
    "Decision",
    "Endpoint",
    "Hypothesis",
    "Inference",
    "Interaction",
    "Plan",
    "Spec",
    "Stability",
    "Study",
    "Tuning",
    "at_edges",
    "at_rates",
    "changed_files",
    "changed_sources",
    "custom_code",
    "explain",
    "first_stage",
    "in_words",
    "is_untuned",
    "load_study",
    "measuring_record",
    "null_name",
    "null_study",
    "open_edges",
    "own_digests",
    "parse_override",
    "parse_study",
    "read_study",
    "require_trust",
    "rule_record",
    "shipped_groups",
    "shipped_studies",
    "step_code",
    "tuned_null_studies",
    "tuning_study",
    "with_choice",
]
