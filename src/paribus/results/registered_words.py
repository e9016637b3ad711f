"""Question, titles and descriptions of a study as they were registered.

They are no part of the study's digest, so that a typo can be corrected. What is shown with an
answer is nevertheless what was registered before it, and an edit is reported as one.
"""

from __future__ import annotations

from typing import Any

from paribus.study import Study
from paribus.study.allowed_text import require_plain

WORDS = "words"  # key of registration.json
OF_STUDY = ("title", "question")
OF_ARMS = ("title", "description")


def words_of(study: Study) -> dict[str, Any]:
    """Return the texts that only describe `study`, as registration.json has them."""
    return {
        **{key: getattr(study, key) for key in OF_STUDY},
        "arms": {
            name: {key: getattr(arm, key) for key in OF_ARMS} for name, arm in study.arms.items()
        },
        "interactions": {
            name: {"title": interaction.title} for name, interaction in study.interactions.items()
        },
    }


def edited_words(study: Study, registered: dict[str, Any]) -> tuple[str, ...]:
    """Return the keys of texts that differ from the registered ones, such as `arms.new.title`.

    A text that the registration lacks counts as edited: every registration is written with all.

    Args: registered: registration.json.
    """
    before, now = (_flat(table) for table in (registered.get(WORDS, {}), words_of(study)))
    return tuple(key for key, text in now.items() if before.get(key) != text)


def as_registered(study: Study, registered: dict[str, Any]) -> Study:
    """Return `study` with the registered texts, as far as the registration has them.

    Raises ParibusError if one of them holds characters that no study may.
    """
    texts = _flat(registered.get(WORDS, {}))
    edited = [key for key in edited_words(study, registered) if key in texts]
    if not edited:
        return study
    require_plain({key: texts[key] for key in edited})

    def own(prefix: str) -> dict[str, str]:
        """Return the edited texts of one table, by the last part of their keys."""
        return {key: texts[f"{prefix}{key}"] for key in _KEYS if f"{prefix}{key}" in edited}

    tables = {
        kind: {
            name: spec.model_copy(update=own(f"{kind}.{name}."))
            for name, spec in getattr(study, kind).items()
        }
        for kind in ("arms", "interactions")
    }
    return study.model_copy(update=own("") | tables)


_KEYS = tuple(dict.fromkeys((*OF_STUDY, *OF_ARMS)))


def _flat(words: dict[str, Any]) -> dict[str, str]:
    """Return all texts by dotted key."""
    return {key: text for key, text in words.items() if isinstance(text, str)} | {
        f"{kind}.{name}.{key}": text
        for kind in ("arms", "interactions")
        for name, texts in words.get(kind, {}).items()
        for key, text in texts.items()
    }
