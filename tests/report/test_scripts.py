"""The scripts of a page: bundled once, and never taken from the cache where they were changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from paribus.report import page as scripts


@pytest.fixture
def bundled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What was asked of vl-convert; the cache is a new folder."""
    asked: list[str] = []

    def bundle(code: str) -> str:
        asked.append(code)
        return "let a = '</script>';"

    monkeypatch.setattr(scripts.vl_convert, "javascript_bundle", bundle)
    monkeypatch.setenv("PARIBUS_CACHE", str(tmp_path / "cache"))
    return asked


def test_scripts_are_bundled_once_a_machine(bundled: list[str]) -> None:
    first = scripts.javascript()
    assert first == "let a = '<\\/script>';"  # it would end the element that holds it
    assert scripts.javascript() == first and len(bundled) == 1


def test_changed_scripts_are_made_again(bundled: list[str], tmp_path: Path) -> None:
    first = scripts.javascript()
    (kept,) = (tmp_path / "cache").rglob("vega-*.js")
    for damaged in (first[:5], first + "alert(1)", ""):
        kept.write_text(damaged)
        assert scripts.javascript() == first
    assert len(bundled) == 4 and kept.read_text() == first


def test_scripts_of_another_version_are_left_alone(
    bundled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts.javascript()
    monkeypatch.setattr(scripts, "version", lambda package: "99")
    scripts.javascript()
    assert len(bundled) == 2


def test_a_cache_that_cannot_be_written_stops_no_report(
    bundled: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PARIBUS_CACHE", str(tmp_path / "file"))
    assert scripts.javascript() == scripts.javascript() and len(bundled) == 2
