"""Conversion of a report to `verdict.json`."""

from __future__ import annotations

from typing import Any

from paribus.analysis import Analysis
from paribus.decision.evidence import estimate_of
from paribus.digests import plain
from paribus.report.cautions import instead_text, invalid_text, needs_text, why_no_interaction
from paribus.report.model import Report, secondary_contrasts


def verdict_record(report: Report) -> dict[str, Any]:
    """Convert a report to the content of `verdict.json`."""
    verdicts, analysis = report.verdicts, report.verdicts.analysis
    records = []
    for verdict, cautions in zip(verdicts, report.cautions_of, strict=True):
        evidence = verdict.evidence
        needed = vars(verdict.needed) | {"instead": instead_text(analysis, verdict)}
        record = vars(verdict) | {
            "needs": needs_text(analysis, verdict),
            "needed": needed | ({"pairs": None} if verdict.needed.why_not else {}),
            "evidence": {"invalid": invalid_text(analysis, verdict), "n": evidence.n}
            | evidence.state._asdict(),
            "cautions": cautions,
        }
        records.append(record)
    content: dict[str, Any] = {"verdicts": records, "secondary": _secondary(analysis)}
    optional = {
        "hypotheses": report.hypotheses,
        "interactions": [
            plain(interaction) | {"why_not": why_no_interaction(verdicts, interaction)}
            for interaction in verdicts.interactions
        ],
        "excluded": analysis.excluded,
        "findings": sorted({code for code, _ in analysis.runs.notes}) if analysis.runs else [],
    }
    return plain(content | {key: value for key, value in optional.items() if value})


def _secondary(analysis: Analysis) -> list[dict[str, Any]]:
    return [
        {
            "arm": contrast.arm,
            "reference": contrast.reference,
            "metric": contrast.metric,
            "label": contrast.declared.label,
            "unit": contrast.declared.unit,
            "better": contrast.declared.better,
            **estimate_of(contrast.decided),
            "p": contrast.p,
            "adjusted_p": contrast.holm_p,
            "why_not": contrast.why_not,
        }
        | ({"never_reached": contrast.censored} if any(contrast.censored) else {})
        for contrast in secondary_contrasts(analysis)
    ]
