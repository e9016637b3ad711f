"""Own code imports by the names of its day: rooms that moved, modules that others took in."""

from __future__ import annotations

import importlib

from paribus.former_paths import JOINED, MOVED


def test_former_names_give_the_modules_of_today() -> None:
    for former, today in JOINED.items():
        module = importlib.import_module(today)
        spec = module.__spec__
        assert importlib.import_module(former) is module
        old = former.replace("paribus.engine.", "paribus.")
        assert importlib.import_module(old) is module
        assert module.__spec__ is spec
    for former, today in MOVED.items():
        assert importlib.import_module(f"paribus.{former}") is importlib.import_module(today)


def test_a_class_is_imported_from_where_it_was() -> None:
    former = importlib.import_module("paribus.model.attention")
    assert former.Attention is importlib.import_module("paribus.engine.model").Attention
