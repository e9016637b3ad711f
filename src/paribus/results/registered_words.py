"""Question, titles and descriptions of a study as they were registered.

They are no part of the study's digest, so that a typo can be corrected. What is shown with an
answer is nevertheless what was registered before it, and an edit is reported as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from paribus.digests import changes
from paribus.study import Study
from paribus.study.allowed_text import require_plain

WORDS = "words"  # key of registration.json
OF_STUDY = ("title", "question")
OF_PARTS = {"arms": ("title", "description"), "interactions": ("title",)}


def words_of(study: Study) -> dict[str, Any]:
    """Return the texts that only describe `study`, as registration.json has them."""
    words: dict[str, Any] = {key: getattr(study, key) for key in OF_STUDY}
    for kind, keys in OF_PARTS.items():
        parts = getattr(study, kind).items()
        words[kind] = {name: {key: getattr(part, key) for key in keys} for name, part in parts}
    return words


def edited_words(study: Study, registered: dict[str, Any]) -> tuple[str, ...]:
    """Return the keys of texts that differ from the registered ones, such as `arms.new.title`.

    A text that the registration lacks counts as edited: every registration is written with all.

    Args: registered: registration.json.
    """
    return tuple(changes(registered.get(WORDS, {}), words_of(study)))


def as_registered(study: Study, registered: dict[str, Any]) -> Study:
    """Return `study` with the registered texts, as far as the registration has them."""
    texts = registered.get(WORDS, {})
    require_plain(texts)

    def with_texts(part: Any, keys: Iterable[str], texts: Mapping[str, str]) -> Any:
        known = {key: texts[key] for key in keys if key in texts}
        return part.model_copy(update=known)

    tables = {
        kind: {
            name: with_texts(part, keys, texts.get(kind, {}).get(name, {}))
            for name, part in getattr(study, kind).items()
        }
        for kind, keys in OF_PARTS.items()
    }
    return with_texts(study.model_copy(update=tables), OF_STUDY, texts)
