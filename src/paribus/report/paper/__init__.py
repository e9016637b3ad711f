"""Papers: the report of one study, and papers that people write with numbers bound to studies."""

from paribus.report.paper.authored import check, set_paper
from paribus.report.paper.one_study import write_paper

__all__ = ["check", "set_paper", "write_paper"]
