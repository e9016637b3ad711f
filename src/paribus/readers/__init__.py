"""Readers that extract runs from logs and tables of other programs; `judge` compares the runs."""

from paribus.readers.port import Reader, Run, Source, reader
from paribus.readers.read import Reading, read, shipped_readers
from paribus.readers.tables import runs_of

__all__ = ["Reader", "Reading", "Run", "Source", "read", "reader", "runs_of", "shipped_readers"]
