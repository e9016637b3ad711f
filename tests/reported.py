"""What the report says of verdicts, for tests: cautions, and rows of the card."""

from __future__ import annotations

from paribus.decision import Verdicts
from paribus.report.cautions import Caution, all_cautions
from paribus.report.model import Row, build_report


def cautions(verdicts: Verdicts) -> list[Caution]:
    """Return the cautions of the first verdict."""
    arms = {arm: arm for arm in verdicts.analysis.study.arms}
    return list(all_cautions(verdicts.analysis, verdicts, arms)[0])


def codes(verdicts: Verdicts) -> set[str]:
    """Return the codes of the cautions of the first verdict."""
    return {caution.code for caution in cautions(verdicts)}


def texts(verdicts: Verdicts, code: str) -> list[str]:
    """Return the sentences that the first verdict has with a code."""
    return [caution.text for caution in cautions(verdicts) if caution.code == code]


def rows(verdicts: Verdicts) -> dict[str, Row]:
    """Return the rows of the first primary endpoint, by arm."""
    return {row.name: row for row in build_report(verdicts).blocks[0].rows}
