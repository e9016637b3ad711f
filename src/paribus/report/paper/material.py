"""What the paper is written from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from paribus.analysis import Analysis
from paribus.decision import Verdict
from paribus.report.facts import Facts
from paribus.report.figures import Figure
from paribus.report.paper.measured_errors import MeasuredErrors
from paribus.report.words import names
from paribus.results import Results
from paribus.study import Study


@dataclass(frozen=True)
class Material:
    """The records, what was inferred and decided, and the figures that they gave.

    Attributes:
        label: what the study is called among others of its name; its name where it is empty.
        short: that without what most names of the paper begin with; empty where they share nothing.
        errors: of a study of the baseline against itself, what was measured.
    """

    results: Results
    analysis: Analysis
    verdicts: list[Verdict]
    figures: list[Figure]
    label: str = ""
    errors: MeasuredErrors | None = None
    short: str = ""

    @property
    def name(self) -> str:
        """What the study is called in this paper."""
        return self.short or self.full_name

    @property
    def full_name(self) -> str:
        """What the study is called beside the digests, and in the authors' file."""
        return self.label or self.study.name

    @property
    def study(self) -> Study:
        """The study, as the results folder has it."""
        return self.results.study

    @cached_property
    def facts(self) -> Facts:
        """What is recorded of model, data and training, in words; of the baseline."""
        return Facts.of(self.results)

    @cached_property
    def called(self) -> dict[str, str]:
        """What every arm is called."""
        return names(self.study)

    @cached_property
    def parameters_of(self) -> dict[str, int]:
        """Parameters by arm, as the trials recorded them."""
        trials = self.results.trials.items()
        return {arm: trial["parameters"] for (arm, _), trial in trials if "parameters" in trial}

    @property
    def parameters(self) -> list[int]:
        """Of every arm that has a finished trial."""
        return list(self.parameters_of.values())

    @cached_property
    def drawn(self) -> dict[str, Figure]:
        """The figures by name."""
        return {figure.name: figure for figure in self.figures}

    @cached_property
    def normalises_embeddings(self) -> bool:
        """Whether some arm has a norm on the embeddings where its reference has none."""
        for arm, reference in self.study.contrasts:
            ours, theirs = (self.study.setting(a).model.embedding.norm for a in (arm, reference))
            if theirs == "none" != ours:
                return True
        return False

    @cached_property
    def control_states(self) -> dict[str, set[str]]:
        """By control, the states that it has over all contrasts."""
        found: dict[str, set[str]] = {}
        for control in self.analysis.controls:
            found.setdefault(control.name, set()).add(control.state)
        return found
