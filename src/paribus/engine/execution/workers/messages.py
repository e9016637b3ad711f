"""Messages between those who start workers and the workers: a dataclass each.

On its way a message is one line of JSON that begins with its name, so a worker may run wherever a
line of text can be sent. A worker is greeted by `Hello` and says `Ready`; then it does one task
after another. A task is a `Task[Answer]`: its class says which message ends it. `Resumed` and
`Trained` tell of one under way; `Refused` and `Failed` come where a worker cannot go on. Importing
this loads no PyTorch.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from types import NoneType
from typing import Any, ClassVar, Generic, TypeVar, get_args

from pydantic import TypeAdapter

from paribus.engine.machine.measurements import Fit, StepTime
from paribus.study.trainer import Trial

Answer = TypeVar("Answer")
Message = TypeVar("Message")

_KNOWN: dict[str, type[Any]] = {}  # every message by the name that its line begins with


def _known(message: type[Message]) -> type[Message]:
    """Let `message` be read back. Raises ValueError for a second one of its name."""
    if _KNOWN.setdefault(message.__name__, message) is not message:
        raise ValueError(f"there are two messages called {message.__name__}")
    return message


def encode(message: object) -> str:
    """Return a message as its line."""
    return json.dumps({"message": type(message).__name__} | asdict(message)) + "\n"  # type: ignore[call-overload]


def decode(line: str) -> Any:
    """Return the message of a line. Raises ValueError where it is none, such as half of one."""
    content = json.loads(line)
    if not isinstance(content, dict) or content.get("message") not in _KNOWN:
        raise ValueError(f"this is no message: {line!r:.80}")
    return _adapter(_KNOWN[content.pop("message")]).validate_python(content)


@cache
def _adapter(message: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(message)


@_known
@dataclass(frozen=True)
class Hello:
    """The first line to a worker: what it works on."""

    study: dict[str, Any]
    folder: str  # what paths of the study are relative to
    results: str  # the results folder
    device: str  # "auto", "cpu", "cuda" or "mps"
    number: int  # which of several GPUs the worker takes
    checkpoint_seconds: float  # how often a stack is saved
    eager: bool  # whether a GPU's kernels are launched one by one


@_known
@dataclass(frozen=True)
class Ready:
    """The first line of a worker: the device that it found."""

    device: str
    devices: int  # how many of its kind there are
    precision: str  # what "auto" means on it


@_known
@dataclass(frozen=True)
class Refused:
    """Something that the user can mend; the worker leaves."""

    words: str


@_known
@dataclass(frozen=True)
class Failed:
    """A defect; the worker leaves."""

    words: str
    trace: str


@_known
@dataclass(frozen=True)
class Resumed:
    """A stack goes on from step `t`; `words` say where a checkpoint could not be used."""

    trials: tuple[Trial, ...]
    t: int
    words: str


@_known
@dataclass(frozen=True)
class Trained:
    """A stack has done `t` steps; the last training loss of each replica, None if not finite."""

    trials: tuple[Trial, ...]
    t: int
    losses: list[float | None]


class Task(Generic[Answer]):
    """A task of a worker; `Task[None]` is not answered."""

    answer: ClassVar[type[Any]]

    def __init_subclass__(cls) -> None:
        """Let a task be read back, and what its base says that it is answered with."""
        (cls.answer,) = get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined]
        if isinstance(cls.answer, TypeVar):  # a kind of tasks
            return
        _known(cls)
        if cls.answer is not NoneType and cls.answer.__name__ not in _KNOWN:
            _known(cls.answer)


class ArmTask(Task[Answer]):
    """A task on an arm: only workers that may run its custom code are asked."""

    arm: str

    @property
    def labels(self) -> list[str]:
        """The trials that it is on, as `TrialFolder.label` has them."""
        seed = getattr(self, "seed", None)
        trials = getattr(self, "trials", () if seed is None else ((self.arm, seed),))
        return [f"{arm}/seed-{seed}" for arm, seed in trials]

    @property
    def doing(self) -> str:
        """What its worker does, should it die: "on baseline/seed-1"."""
        return f"on {', '.join(self.labels) or self.arm}"


@dataclass(frozen=True)
class Metrics:
    """`Metric.about` of all that the study compares, by name."""

    metrics: dict[str, Any]


@dataclass(frozen=True)
class Findings:
    """What the user is told, a line each: warnings of a dry run, or what does not agree."""

    lines: list[str]


@dataclass(frozen=True)
class Finished:
    """A task is done, and what it gives is in the results folder."""


@dataclass(frozen=True)
class Comparison:
    """First steps of a trial, trained again, against its record."""

    elsewhere: list[str]  # what of the machine is another, so that nothing could be compared
    differs_at: int | None = None  # the first step with other bits
    differs: str = ""  # what differs there


@dataclass(frozen=True)
class Rest(Task[None]):
    """Give back what memory the last task has left."""


@dataclass(frozen=True)
class Adopt(Task[None]):
    """Work on another study from now on."""

    study: dict[str, Any]


@dataclass(frozen=True)
class Declare(Task[Metrics]):
    """Look the study's endpoints up."""


@dataclass(frozen=True)
class Check(ArmTask[Findings]):
    """Try some steps of an arm, in stacks of so many replicas; see `engine.check`."""

    arm: str
    stack: int
    by_shapes: bool = False

    @property
    def doing(self) -> str:
        """What its worker does, should it die."""
        return f"in the dry run of arm '{self.arm}'"


@dataclass(frozen=True)
class MeasureMemory(ArmTask[Fit]):
    """See how many of `stack` replicas fit where `workers` share the memory."""

    arm: str
    stack: int
    workers: int


@dataclass(frozen=True)
class MeasureStep(ArmTask[StepTime]):
    """Time a step of so many replicas of an arm."""

    arm: str
    stack: int


@dataclass(frozen=True)
class Train(ArmTask[Finished]):
    """Train, evaluate and record trials side by side; their arms share the model of `arm`."""

    arm: str
    trials: tuple[Trial, ...]


@dataclass(frozen=True)
class EvaluateHeldoutPart(ArmTask[Finished]):
    """Evaluate a finished trial on the test part, which was opened for the verdict."""

    arm: str
    seed: int

    @property
    def doing(self) -> str:
        """What its worker does, should it die."""
        return f"{super().doing}, test part"


@dataclass(frozen=True)
class AnswerTasks(ArmTask[Finished]):
    """Let a finished trial answer tasks; `request` says which, and `out` is where answers go."""

    arm: str
    seed: int
    request: dict[str, Any]
    out: str


@dataclass(frozen=True)
class TrainAgain(ArmTask[Comparison]):
    """Train the first `steps` steps of a finished trial again."""

    arm: str
    seed: int
    steps: int


@dataclass(frozen=True)
class TimeInTurn(ArmTask[Finished]):
    """Time all arms in turn, with the weights of finished trials."""

    arm: str
    trials: tuple[Trial, ...]

    @property
    def doing(self) -> str:
        """What its worker does, should it die."""
        return "while the arms were timed in turn"
