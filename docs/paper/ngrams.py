"""The loss of n-gram models on the sealed pages of the factorial, beside which its models stand.

    python docs/paper/ngrams.py studies/faq

writes ngrams.json beside this file: nats/token of interpolated Witten-Bell models (Witten & Bell
1991) of order 1 to 5, fitted to as many characters of the middle of the training text as a trial of
each half reads.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

OF_A_TRIAL = {iterations: iterations * 16 * 128 for iterations in (300, 1500)}


def loss(text: str, held_out: Sequence[str], order: int, characters: int) -> float:
    """Return the mean loss, nats/character, of all but the first character of each text."""
    grams = [
        Counter(text[i : i + n] for i in range(len(text) - n + 1)) for n in range(1, order + 1)
    ]
    seen: Counter[str] = Counter()  # how often a context was followed by anything
    kinds: Counter[str] = Counter()  # and by how many different characters
    for of in grams:
        for gram, count in of.items():
            seen[gram[:-1]] += count
            kinds[gram[:-1]] += 1
    total = n_predicted = 0.0
    for page in held_out:
        for i in range(1, len(page)):
            p = 1 / characters
            for n in range(min(order, i + 1)):
                context = page[i - n : i]
                if context not in seen:
                    break
                new = kinds[context]
                p = (grams[n][context + page[i]] + new * p) / (seen[context] + new)
            total -= math.log(p)
            n_predicted += 1
    return total / n_predicted


def main() -> None:
    """Write each order for each half."""
    home = Path(sys.argv[1])
    text = (home / "train.txt").read_text(encoding="utf-8")
    sealed = [page.read_text(encoding="utf-8") for page in sorted((home / "sealed").iterdir())]
    found = {}
    for iterations, size in OF_A_TRIAL.items():
        begin = (len(text) - size) // 2
        part = text[begin : begin + size]
        for order in (1, 2, 3, 4, 5):
            name = f"{order} grams, {iterations}"
            found[name] = loss(part, sealed, order, len(set(text)))
            print(f"{name:20} {found[name]:.4f}", flush=True)
    told = f"{json.dumps(found, indent=1)}\n"
    Path(__file__).with_suffix(".json").write_text(told, encoding="utf-8")


if __name__ == "__main__":
    main()
