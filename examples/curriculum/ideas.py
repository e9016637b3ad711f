"""What documents are sorted by."""


def rare_letters(text: str) -> float:
    """Return capitals, digits and signs for a character: plain prose first."""
    return sum(not (c.islower() or c.isspace()) for c in text) / max(len(text), 1)
