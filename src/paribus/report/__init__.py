"""What people look at, computed only from the records. No torch, no network."""

from paribus.report.compare import write_comparison
from paribus.report.figures import draw
from paribus.report.page import render, write_report
from paribus.report.paper import write_paper
from paribus.report.scripts import prepare

__all__ = [
    "draw",
    "prepare",
    "render",
    "write_comparison",
    "write_paper",
    "write_report",
]
