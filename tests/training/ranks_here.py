"""Ranks in forks of this process: a function that each runs, and their answers by rank.

A fork has imported PyTorch already. Starting four interpreters takes longer than these tests.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._C._distributed_c10d import FileStore

from paribus.engine.training.ranks import Ranks

CPU = torch.device("cpu")


def run_ranks(size: int, action: Callable[[Ranks], Any]) -> list[Any]:
    """Return what `action` gives on each of `size` ranks, each a process of its own."""
    pids = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rank in range(size):
            pid = os.fork()
            if pid:
                pids.append(pid)
                continue
            code = 1
            try:
                torch.set_num_threads(1)
                answer = action(Ranks.meet(rank, size, CPU, FileStore(f"{folder}/store", size)))
                (folder / f"{rank}").write_bytes(pickle.dumps(answer))
                Ranks.part()
                code = 0
            except BaseException:
                (folder / f"{rank}.error").write_text(traceback.format_exc())
            finally:
                os._exit(code)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        errors = [path.read_text() for path in sorted(folder.glob("*.error"))]
        assert not errors, "\n".join(errors)
        assert codes == [0] * size
        return [pickle.loads((folder / f"{rank}").read_bytes()) for rank in range(size)]
