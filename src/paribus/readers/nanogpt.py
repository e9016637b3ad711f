"""nanoGPT: the standard output of `train.py`.

    Overriding config with config/train_shakespeare_char.py:
    Overriding: seed = 1338
    step 250: train loss 1.9667, val loss 2.0695
    iter 250: loss 2.0231, time 28123.45ms, mfu 12.34%

A log of several trainings, each from step 0 on, has a run for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from paribus.readers.port import Run, Source, as_number, reader, seed_fact

LOGGED = re.compile(rb"^step \d{1,12}: train loss \S+, val loss ", re.MULTILINE)
VALUE = rb"([-+.\w]+)"
LINE = re.compile(
    rb"^(?:step (\d{1,12}): train loss " + VALUE + rb", val loss " + VALUE + rb"(?=[\s,])"
    rb"|iter (\d{1,12}): loss " + VALUE + rb","
    rb"|(?:Overriding: )?(max_iters|seed) = (\d{1,18})\s"
    rb"|Overriding config with (\S+):\s)",
    re.MULTILINE,
)


def _detects(source: Source) -> bool:
    return source.has(b": train loss ") and source.matches(LOGGED)


@reader("nanogpt", says="standard output of its train.py", detects=_detects)
def nanogpt(source: Source) -> Iterator[Run]:
    """Yield the trainings of a log: `val_loss` and `eval_train_loss`, and `train_loss` of batches,
    by step. Facts are what it was told: `config`, `seed`, `planned_steps`."""
    run, told = Run(""), seed_fact(source.path)
    for piece in source.pieces():
        for step, train, val, iteration, loss, key, value, config in LINE.findall(piece):
            if step:
                if int(step) == 0 and run.curves:
                    yield _finished(run)
                    run = Run("")
                run.facts |= told
                _add(run, step, val_loss=val, eval_train_loss=train)
            elif iteration:
                _add(run, iteration, train_loss=loss)
            elif key:
                told["seed" if key == b"seed" else "planned_steps"] = float(value)
            else:
                told["config"] = config.decode("utf-8", "replace")
    if run.curves:
        if source.is_cut:
            run.facts["cut"] = "the last line has no end"
        yield _finished(run)


def _add(run: Run, step: bytes, **values: bytes) -> None:
    for name, text in values.items():
        if (number := as_number(text)) is not None:
            run.curves.setdefault(name, []).append((int(step), number))


def _finished(run: Run) -> Run:
    run.facts["steps"] = float(max(curve[-1][0] for curve in run.curves.values()))
    run.scores |= {name: curve[-1][1] for name, curve in run.curves.items()}
    return run
