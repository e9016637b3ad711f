"""Readers: the runs that other people's logs and tables hold, one file for each form.

`read` finds the files, recognises each and returns its runs; nothing is judged here. A file in this
folder that declares a `Reader` is found by itself; a user's own is named by its import path:

    from paribus.extend import Run, reader

    @reader("mine", says="loss, by lines of 'loss=...'", detects=lambda source: False)
    def mine(source):
        for line in source.lines():
            if line.startswith(b"loss="):
                yield Run("", scores={"loss": float(line[5:])})
"""

from paribus.readers.copies import counted_once
from paribus.readers.facts import Finding, check_facts, list_facts
from paribus.readers.port import Columns, Reader, Run, Source, path_of, reader
from paribus.readers.read import (
    Reading,
    files_at,
    is_known,
    read,
    shipped_readers,
)
from paribus.readers.tables import runs_of
from paribus.readers.values import check_units, check_values

__all__ = [
    "Columns",
    "Finding",
    "Reader",
    "Reading",
    "Run",
    "Source",
    "check_facts",
    "check_units",
    "check_values",
    "counted_once",
    "files_at",
    "is_known",
    "list_facts",
    "path_of",
    "read",
    "reader",
    "runs_of",
    "shipped_readers",
]
