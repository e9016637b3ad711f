"""Who does the work of a run: the workers of one pool, or jobs of a scheduler (`jobs/crew.py`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol, TypeVar

from paribus.engine.execution.checks.repeat import retrain
from paribus.engine.execution.start import Beginning, start
from paribus.engine.execution.timing.interleaved_timing import time_in_turn
from paribus.engine.execution.trial.stacks import Trial
from paribus.engine.execution.workers.messages import ArmTask
from paribus.engine.execution.workers.pool import Pool
from paribus.results import ResultsFolder
from paribus.study import Study

Asked = TypeVar("Asked", bound=ArmTask[Any])
Say = Callable[[str], object]


class Crew(Protocol):
    """Who does the work of a run. Everything is done, or begun again, whatever happened before."""

    def start(self, begins: Beginning) -> tuple[Study, list[list[Trial]]]:
        """Try a step of every arm and register the study; see `paribus.engine.execution.start`."""
        ...

    def work(
        self,
        tasks: Iterable[Asked],
        doing: Callable[[Asked], str],
        hear: Callable[[Asked, Any], None] = lambda task, message: None,
    ) -> None:
        """Do tasks whose results lie in the folder; see `Pool.work`."""
        ...

    def retrain(self, study: Study, folder: ResultsFolder, say: Say) -> None:
        """Train again what is registered to be; see `checks.repeat`."""
        ...

    def time(self, study: Study, folder: ResultsFolder, trials: Collection[Trial]) -> None:
        """Time all arms in turn."""
        ...


class PoolCrew:
    """Workers of one pool."""

    def __init__(self, pool: Pool, workers: int | None, stack: int | None) -> None:
        self.pool, self._workers, self._stack = pool, workers, stack
        self.work = pool.work

    def start(self, begins: Beginning) -> tuple[Study, list[list[Trial]]]:
        """Start workers, try a step of every arm and register the study."""
        return start(self.pool, begins, self._workers, self._stack)

    def retrain(self, study: Study, folder: ResultsFolder, say: Say) -> None:
        """Train again what is registered to be."""
        retrain(self.pool, study, folder, say)

    def time(self, study: Study, folder: ResultsFolder, trials: Collection[Trial]) -> None:
        """Time all arms in turn; nothing else of ours runs then."""
        time_in_turn(self.pool, study, folder, trials)
