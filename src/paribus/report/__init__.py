"""What people look at, computed only from the records. No torch, no network."""

from paribus.report.page import render, write_report

__all__ = ["render", "write_report"]
