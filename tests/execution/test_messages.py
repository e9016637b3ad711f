"""Messages arrive as they were sent, and every task has somebody who does it."""

from __future__ import annotations

import math
import typing
from dataclasses import fields, is_dataclass

import pytest

from paribus.engine.execution import messages
from paribus.engine.execution.messages import (
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
from paribus.engine.execution.task_handlers import DUTIES
from paribus.engine.machine.measurements import Fit, StackTimes

HELLO = Hello({"seeds": [1]}, "f", "r", "cpu", 0, checkpoint_seconds=60.0, eager=False, run=None)
TIMES = StackTimes(7, "float32", {"data": 0.5}, 1.0, 0.9, 10, 2.5, 3.0, 4, None, {"stack": 2})


@pytest.mark.parametrize(
    "message",
    [
        HELLO,
        Train("a", (("a", 1), ("b", 2))),
        Trained((("a", 1), ("b", 2)), 3, [1.5, None]),
        MeasureMemory("a", 4, 2),
        Fit(2, "each takes 1 GiB, \u2028 and \n more"),
        Comparison(["processor"]),
        TIMES,
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_is_one_line_and_comes_back_equal(message: object) -> None:
    line = encode(message)
    assert line.endswith("\n") and line.count("\n") == 1
    assert decode(line) == message
    assert type(decode(line)) is type(message)


def test_numbers_that_json_has_no_word_for_arrive() -> None:
    """A model too small to time may take no time at all: its speed is infinite."""
    found = decode(encode(StackTimes(*[*vars(TIMES).values()][:6], math.inf, 3.0, 4, None, {})))
    assert found.ceiling_flops_per_second == math.inf


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


def test_every_task_is_done_and_answered_as_it_says() -> None:
    ours = [one for one in vars(messages).values() if isinstance(one, type)]
    tasks = {one for one in ours if issubclass(one, Task)} - {Task, ArmTask}
    assert tasks == DUTIES.keys()
    assert len(DUTIES) > 10
    for task, duty in DUTIES.items():
        assert is_dataclass(task)
        given = typing.get_type_hints(duty)
        assert given["task"] is task
        assert given["return"] is task.answer
        if issubclass(task, ArmTask):
            assert fields(task)[0].name == "arm"


def test_two_messages_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two messages called Train"):

        class Train(Task[Fit]):
            pass

    first = messages.Train("a", ())
    assert decode(encode(first)) == first
