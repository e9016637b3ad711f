"""T0's prompt templates (Sanh et al. 2022) for the tasks of the standard suite.

The harness's own way to them, `use_prompt: promptsource:...`, is closed: promptsource wants a
Python before 3.10, and knows the data sets by names that the harness no longer uses. So they are
here word for word, in `t0.toml`, and this page renders them as promptsource does. The harness
scores and judges them like any task: of choices, by the highest log-likelihood.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from jinja2 import BaseLoader, Environment

from paribus.digests import digest

SEPARATOR = "|||"
# As promptsource protects the separator where a text has it.
STAND_IN = "3ed2dface8203c4c9dfb1a5dc58e41e0"

_jinja = Environment(loader=BaseLoader())  # texts are no HTML: nothing is escaped
_jinja.globals.update(zip=zip)


@dataclass(frozen=True)
class Template:
    """One wording of a task.

    Attributes:
        task: the harness's task, whose data it words.
        name: promptsource's name for it, and `id` its identifier there.
        choices: Jinja text of the choices, apart by SEPARATOR.
        jinja: Jinja text of the prompt and, after SEPARATOR, of the right answer.
    """

    task: str
    name: str
    id: str
    choices: str
    jinja: str

    @property
    def digest(self) -> str:
        """SHA-256 of what decides the prompts."""
        return digest([self.choices, self.jinja])

    def text(self, document: dict[str, Any]) -> str:
        """What the model reads."""
        return self._parts(document)[0]

    def options(self, document: dict[str, Any]) -> list[str]:
        """The choices, in their order."""
        return _render(self.choices, document)

    def right(self, document: dict[str, Any]) -> int:
        """The place of the right choice."""
        return self.options(document).index(self._parts(document)[1])

    def word(self, document: dict[str, Any]) -> str:
        """The right answer as a continuation of the prompt, for a task without choices."""
        return " " + self._parts(document)[1]

    def config(self, has_choices: bool) -> dict[str, Any]:
        """What it changes in the configuration of its task."""
        if not has_choices:
            return {"doc_to_text": self.text, "doc_to_target": self.word}
        return {
            "doc_to_text": self.text,
            "doc_to_choice": self.options,
            "doc_to_target": self.right,
            "metric_list": [
                {"metric": metric, "aggregation": "mean", "higher_is_better": True}
                for metric in ("acc", "acc_norm")
            ],
        }

    def _parts(self, document: dict[str, Any]) -> list[str]:
        return _render(self.jinja, document | {"answer_choices": self.options(document)})


def _render(jinja: str, document: dict[str, Any]) -> list[str]:
    """The parts of a rendered template, stripped (promptsource's `Template.apply`)."""
    protected = {
        key: value.replace(SEPARATOR, STAND_IN) if isinstance(value, str) else value
        for key, value in document.items()
    }
    rendered = _jinja.from_string(jinja).render(**protected)
    return [part.strip().replace(STAND_IN, SEPARATOR) for part in rendered.split(SEPARATOR)]


def read_templates() -> dict[str, Template]:
    """Every template by its name here, `task:wording`."""
    text = (resources.files("paribus.engine.evaluation.harness") / "t0.toml").read_text("utf-8")
    tasks = tomllib.loads(text)
    del tasks["source"]
    return {
        f"{task}:{wording}": Template(task, **table)
        for task, wordings in tasks.items()
        for wording, table in wordings.items()
    }
