"""Messages arrive as they were sent, and every task has somebody who does it."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest

from paribus.engine.execution.workers import messages, worker
from paribus.engine.execution.workers.messages import (
    ArmTask,
    Comparison,
    Hello,
    MeasureMemory,
    Task,
    Train,
    Trained,
    decode,
    encode,
)
from paribus.engine.machine.measurements import Fit, StepTime

HELLO = Hello({"seeds": [1]}, "f", "r", "cpu", 0, checkpoint_seconds=60.0, eager=False)
STEP = StepTime(0.25, 2, 4096)


@pytest.mark.parametrize(
    "message",
    [
        HELLO,
        Train("a", (("a", 1), ("b", 2))),
        Trained((("a", 1), ("b", 2)), 3, [1.5, None]),
        MeasureMemory("a", 4, 2),
        Fit(2, "each takes 1 GiB, \u2028 and \n more"),
        Comparison(["processor"]),
        STEP,
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_is_one_line_and_comes_back_equal(message: object) -> None:
    line = encode(message)
    assert line.endswith("\n") and line.count("\n") == 1
    assert decode(line) == message
    assert type(decode(line)) is type(message)


def test_numbers_that_json_has_no_word_for_arrive() -> None:
    assert decode(encode(StepTime(math.inf, 1, 0))).seconds == math.inf


@pytest.mark.parametrize(
    "line",
    [
        encode(HELLO)[:-9],  # whoever wrote it died
        "",
        "[]\n",
        '{"message": "Nothing"}\n',
        '{"message": "Fit", "stack": "many", "why": ""}\n',
        '{"message": "Fit", "stack": 1}\n',
    ],
)
def test_what_is_no_message_is_told(line: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(line)


def test_every_task_has_somebody_who_does_it() -> None:
    tree = ast.parse(Path(worker.__file__).read_text())
    done = {
        node.cls.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.MatchClass) and isinstance(node.cls, ast.Attribute)
    }
    tasks = {name for name, one in vars(messages).items() if _is_task(one)}
    assert len(tasks) > 10
    assert tasks - done == {"Rest"}  # between tasks memory is given back, whatever is asked


def _is_task(one: object) -> bool:
    return isinstance(one, type) and issubclass(one, Task) and one not in (Task, ArmTask)


def test_two_messages_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two messages called Train"):

        class Train(Task[Fit]):
            pass

    first = messages.Train("a", ())
    assert decode(encode(first)) == first
