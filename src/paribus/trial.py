"""Reporting of results, data and initial values from a training program to paribus.

    from paribus import trial

    torch.manual_seed(trial.seed)
    trial.initial(model)                       # before the first step
    for step in range(steps):
        x, y = next(batches)
        trial.batch(x)                         # each training batch
        ...
        trial.log(step, loss=loss.item())      # as often as you like
    trial.report(val_bpb=evaluate(model))      # the result

If `paribus run` started the program, these calls record values, and digests that show whether two
arms used the same data and initial values. Otherwise, they do nothing. This file needs only
Python's standard library (NumPy and PyTorch are optional), so it can also be copied into a
repository. It draws no random numbers and does not affect the program's computations.

    python -m paribus.trial train.py --depth=4         # or: -m scripts.base_train --depth=4

runs an unmodified program that sets a constant seed (`torch.manual_seed(1337)`) with a different
seed in each trial. Calls that set seed n are patched to set n + 1,000,003 x the trial's seed, so
ranks with different seeds keep different seeds. random, numpy.random and torch are also seeded in
this way before the program starts.

In a distributed program, only the process of rank 0 reports.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import sys

FOLDER = "PARIBUS_TRIAL"  # names the folder that is written to
SEED = "PARIBUS_SEED"
RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")

_rank = int(next((os.environ[name] for name in RANKS if os.environ.get(name)), 0))
active = bool(os.environ.get(FOLDER)) and _rank == 0
"""True if paribus started this program and this process reports to it (rank 0)."""
seed = int(os.environ.get(SEED) or 0)
"""Seed of this trial, or 0 if paribus did not start the program."""

_file = None
_batches = 0
_data = b""


def log(step, **values):
    """Log metrics of a training step, such as `log(100, loss=2.31)`.

    Metrics form curves. If a curve is used as a result, the value at the largest step counts, not
    the value of the last call.
    """
    _write({"step": step, "log": _numbers(values)})


def report(step=None, **values):
    """Report results, such as `report(val_bpb=0.981)`.

    If a result is reported repeatedly, the last value counts, unless the study specifies otherwise.
    Results reported with a step form a curve.
    """
    _write({"report": _numbers(values)} | ({} if step is None else {"step": step}))


def batch(*data):
    """Record a training batch: arrays, tensors, strings, or lists and dicts of these.

    GPU tensors are copied to the CPU, which synchronizes with the GPU. To avoid this, pass the
    batch before it is moved to the GPU.
    """
    global _batches, _data
    if not data:
        raise TypeError("trial.batch() needs an argument; pass the batch from the data loader")
    if not active:
        return
    _data = hashlib.sha256(_data + _digest(data)).digest()
    _batches += 1
    if not _batches & (_batches - 1):  # 1, 2, 4, 8 ...: arms of other lengths share a beginning
        _write_data()


def initial(model):
    """Record initial parameter values, given as a PyTorch module or a dict of named arrays."""
    if not active:
        return
    values = model
    if hasattr(model, "state_dict"):
        values = {**model.state_dict(), **dict(model.named_parameters())}
    digests = {}
    for name, value in values.items():
        for wrapper in ("_orig_mod.", "_fsdp_wrapped_module."):
            name = str(name).replace(wrapper, "")
        digests[name] = _digest(value).hex()
    _write({"initial": digests})


def _write_data():
    if _batches:
        _write({"data": {"batches": _batches, "digest": _data.hex()}})


def _write(line):
    global _file
    if not active:
        return
    if _file is None:
        _file = open(os.path.join(os.environ[FOLDER], "trial.jsonl"), "a", encoding="utf-8")  # noqa: SIM115
        atexit.register(_write_data)
    _file.write(json.dumps(line) + "\n")
    _file.flush()


def _numbers(values):
    return {name: float(value) for name, value in values.items()}


def _digest(value):
    """Return the SHA-256 digest of a value's type, shape and bytes."""
    total = hashlib.sha256()
    if isinstance(value, dict):
        for name in sorted(value, key=str):
            total.update(f"{name}:".encode() + _digest(value[name]))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            total.update(_digest(inner))
    elif hasattr(value, "detach"):  # a tensor of PyTorch
        total.update(_tensor_bytes(value))
    elif hasattr(value, "__array__"):
        total.update(_array_bytes(value))
    else:
        total.update(repr(value).encode())
    return total.digest()


def _tensor_bytes(tensor):
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):  # a shard of a distributed one
        tensor = tensor.to_local()
    tensor = tensor.cpu().contiguous()
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        import torch

        content = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
        return f"{tensor.dtype}{list(tensor.shape)}".encode() + content
    return _array_bytes(tensor.numpy())


def _array_bytes(array):
    import numpy

    array = numpy.asarray(array)
    if array.dtype.kind in "iu":  # tokens are the same in any width
        array = array.astype("<i8")
    return f"{array.dtype}{list(array.shape)}".encode() + numpy.ascontiguousarray(array).tobytes()


SEEDERS = (
    *("random.seed", "numpy.random.seed", "torch.manual_seed", "torch.random.manual_seed"),
    *("torch.cuda.manual_seed", "torch.cuda.manual_seed_all"),
)
SALT = 1_000_003  # between the seeds of two trials: more than ranks add


def _seeded(function):
    """Wrap a seeding function to add an offset that depends on the trial's seed."""

    def seed_of_this_trial(n=0, *args, **kwargs):
        return function((n + SALT * seed) % 2**32, *args, **kwargs)

    return seed_of_this_trial if seed else function


def main(words):
    """Run a Python program, given as `-m module ...` or `file.py ...`, with the trial's seed."""
    import importlib.util
    import pkgutil
    import runpy

    if not words or words == ["-m"]:
        sys.exit("usage: python -m paribus.trial [-m MODULE | PROGRAM.py] ARGUMENTS")
    for place in SEEDERS:
        module, _, name = place.rpartition(".")
        if importlib.util.find_spec(module.partition(".")[0]):
            owner = importlib.import_module(module)
            setattr(owner, name, _seeded(getattr(owner, name)))
    for place in SEEDERS[:3]:
        if place.partition(".")[0] in sys.modules:
            pkgutil.resolve_name(place)(0)
    is_module = words[0] == "-m"
    sys.argv = words[1:] if is_module else words
    if is_module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
