"""Software and hardware of trials: which differences are allowed, and what they can affect.

A study can start on one machine and continue on another. A difference that cannot change a
number (a file format's library, Python itself) is `declared`. A difference that can change the
last bits of numbers (another processor, thread count or version of PyTorch) is `not proven`: pairs
are still compared, with a caution. Another kind of device, or another version of the training or
measuring code, is `broken`: the arms were not treated equally.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Effect = Literal["broken", "not proven", "declared"]
Environment = Mapping[str, Any]

# No number of a trial depends on these: they store or analyse records, or (our own version) are
# identified more exactly by the digest of the source.
WITHOUT_EFFECT = frozenset({"paribus", "pyarrow", "safetensors", "scipy"})
ROUNDING = ("processor", "threads", "instructions", "kernels")
# What must be equal for a trial to give the same bits again.
SAME_BITS = ("packages", "python", "processor", "instructions", "device", "threads", "kernels")


def differences(
    own: Environment, reference: Environment, *, pair: bool = False
) -> dict[str, tuple[Effect, str]]:
    """Return how the environments of two trials differ: {name: (effect, description)}.

    Args:
        own: environment.json of a trial.
        reference: environment.json of the trial that it is compared with.
        pair: whether they are an arm and its reference with the same seed. Scores with different
            seeds are never compared, so a difference that may change last bits is then only
            `declared`, and stack sizes may differ.
    """
    effects: dict[str, tuple[Effect, str]] = {}

    def note(name: str, effect: Effect, ours: Any, theirs: Any, words: str = "") -> None:
        if ours != theirs:
            effects[name] = effect, words or f"{name} {ours} against {theirs}"

    rounds: Effect = "not proven" if pair else "declared"
    source = "the code of paribus that trains and measures is different"
    note("code", "broken", own.get("code"), reference.get("code"), source)
    ours, theirs = _kind(own), _kind(reference)
    note("device", "broken", ours, theirs)
    if ours == theirs:
        note("device", rounds, own.get("device"), reference.get("device"))
    packages = [environment.get("packages") or {} for environment in (own, reference)]
    for name in sorted({**packages[0], **packages[1]}):
        versions = (known.get(name, "none") for known in packages)
        note(name, "declared" if name in WITHOUT_EFFECT else rounds, *versions)
    note("Python", "declared", own.get("python"), reference.get("python"))
    for name in (*ROUNDING, *(("stack",) if pair else ())):
        note(name, rounds, own.get(name), reference.get(name))
    note("ranks", rounds, *(each.get("ranks", "one device") for each in (own, reference)))
    for environment in (own, reference):
        for earlier in environment.get("resumed_from", ()):
            last = {**environment, "resumed_from": ()}
            for name, (effect, words) in differences(last, last | earlier, pair=pair).items():
                effects[f"resumed: {name}"] = effect, f"training was resumed elsewhere: {words}"
    return effects


def _kind(environment: Environment) -> str:
    """Return the kind of device: "cpu", "mps", or "cuda" for any name of a GPU."""
    name = str(environment.get("device"))
    return name if name in ("cpu", "mps") else "cuda"
