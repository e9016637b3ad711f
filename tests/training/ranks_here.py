"""Ranks in this process's forks: a function run by each, their answers by rank.

A fork has PyTorch imported already; starting four interpreters instead takes longer than all that
is tested of them.
"""

from __future__ import annotations

import os
import pickle
import socket
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from paribus.engine.training.ranks import Ranks, leave

CPU = torch.device("cpu")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def run_ranks(size: int, action: Callable[[Ranks], Any]) -> list[Any]:
    """Return what `action` gives on each of `size` ranks, each a process of its own."""
    # Once, before the forks.
    import torch._dynamo
    import torch.distributed.fsdp  # noqa: F401

    port, pids = free_port(), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rank in range(size):
            pid = os.fork()
            if pid:
                pids.append(pid)
                continue
            code = 1
            try:
                os.environ |= {
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": str(size),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                }
                torch.set_num_threads(1)
                found = action(Ranks.meet(CPU))
                (folder / f"{rank}").write_bytes(pickle.dumps(found))
                leave()
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
