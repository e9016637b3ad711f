"""Study specifications: validation, loading, tuning and built-in examples."""

from paribus.study.custom_code import own_digests
from paribus.study.load import (
    load_study,
    parse_override,
    parse_study,
    read_study,
    shipped_studies,
)
from paribus.study.sections import (
    Decision,
    Endpoint,
    Hypothesis,
    Interaction,
)
from paribus.study.study import LEARNING_RATE, Study, first_stage
from paribus.study.trust import (
    MEASURING,
    changed_files,
    custom_code,
    measuring_record,
    require_trust,
    step_code,
)
from paribus.study.tuning import (
    Candidate,
    open_edges,
)
from paribus.study.tuning_study import (
    is_untuned,
    tuning_study,
    values_text,
    with_choice,
)
