"""`paper.pdf`: prose from the analysis, set by typst in our own two-column template."""

from paribus.report.paper.material import Material
from paribus.report.paper.prose import compose
from paribus.report.paper.write import write_paper, write_papers

__all__ = ["Material", "compose", "write_paper", "write_papers"]
