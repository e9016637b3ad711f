"""Number formatting shared by the terminal, the page and the PDF."""

from __future__ import annotations

import math
from collections.abc import Sequence

NONE = "–"  # noqa: RUF001  (an en dash, where there is no number)
MOST_DIGITS = 9  # after the point; smaller numbers have an exponent


def fixed(value: float | None, digits: int, sign: str = "") -> str:
    """Format a number as `3.4567`, never `-0.0000`, or as a dash if missing or not finite."""
    if value is None or not math.isfinite(value):
        return NONE
    is_tiny = digits >= MOST_DIGITS and 0 < abs(value) < 1e-3
    notation = "3e" if is_tiny or abs(value) >= 1e9 else f"{digits}f"
    return f"{value:{sign}z.{notation}}"


def signed(value: float | None, digits: int) -> str:
    """Format a number with a sign as `+3.4567`, or as a dash if missing or not finite."""
    return fixed(value, digits, "+")


def mean_sd(mean: float | None, sd: float | None, digits: int) -> str:
    """Format a mean and an SD as `3.4567 (0.0123)`, or only the mean if `sd` is None."""
    return fixed(mean, digits) if sd is None else f"{fixed(mean, digits)} ({fixed(sd, digits)})"


def delta(mean: float | None, low: float | None, high: float | None, digits: int) -> str:
    """Format a change, with its interval if known: `+0.0123 [-0.0010, +0.0256]`."""
    if low is None or high is None:
        return signed(mean, digits)
    return f"{signed(mean, digits)} {interval(low, high, digits)}"


def interval(low: float, high: float, digits: int) -> str:
    """Format an interval: `[-0.0010, +0.0256]`, `[-0.0010, +inf]`, or `[unbounded]`."""
    if math.isinf(low) and math.isinf(high):
        return "[unbounded]"
    ends = (f"{end:+}" if math.isinf(end) else signed(end, digits) for end in (low, high))
    return f"[{', '.join(ends)}]"


def p_value(p: float | None) -> str:
    """Format a p-value as `0.013` or `<0.001`, or "" if it is None."""
    if p is None:
        return ""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def p_equals(p: float | None) -> str:
    """Format a p-value with a relation sign, to follow the letter p: `= 0.013` or `< 0.001`."""
    text = p_value(p)
    return f"< {text[1:]}" if text.startswith("<") else f"= {text}"


def level(alpha: float) -> str:
    """Format the confidence level 1 - `alpha` as `95%`."""
    return f"{1 - alpha:.0%}"


def duration(seconds: float) -> str:
    """Format a duration: `45 s`, `5 min 12 s`, `3 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60:,} h {minutes % 60:02d} min"


def compact(value: float) -> str:
    """Format a number concisely: `0.95`, `16`, or in scientific notation as `3e-4`, `1e30`."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:.12g}"
    mantissa, exponent = f"{value:.11e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def plural(n: int, word: str, words: str = "") -> str:
    """Format a count with its noun: `1 arm`, `2 arms`. Pass irregular plurals as `words`."""
    return f"{n} {word}" if n == 1 else f"{n} {words or word + 's'}"


def some(names: Sequence[str], limit: int = 3) -> str:
    """Join the first `limit` names and count the rest: `a, b, c and 2 more`."""
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest
