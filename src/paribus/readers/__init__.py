"""Readers that extract runs from the logs and tables of other programs.

`read` finds the files, detects the format of each and returns the runs; `judge` compares them. A
custom reader is named by its import path:

    from paribus.extend import Run, reader

    @reader("mine", says="loss, by lines of 'loss=...'", detects=lambda source: False)
    def mine(source):
        for line in source.lines():
            if line.startswith(b"loss="):
                yield Run(scores={"loss": float(line[5:])})
"""

from paribus.readers.port import Reader, Run, Source, reader
from paribus.readers.read import Reading, read, shipped_readers
from paribus.readers.tables import runs_of

__all__ = ["Reader", "Reading", "Run", "Source", "read", "reader", "runs_of"]
__all__ += ["shipped_readers"]
