"""Rules by which others accept a result: one TOML file each, and what they say of runs."""

from paribus.decision.published.answers import answers_of, published_record
from paribus.decision.published.rule import (
    PublishedAnswer,
    PublishedRule,
    find_published,
    published_rules,
    read_rule,
)

__all__ = [
    "PublishedAnswer",
    "PublishedRule",
    "answers_of",
    "find_published",
    "published_record",
    "published_rules",
    "read_rule",
]
