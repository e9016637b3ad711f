"""Software and hardware of trials: which differences are allowed, and what they can affect.

A study can start on one machine and continue on another. A difference that cannot change a
number (a file format's library, Python itself) is `declared`. A difference that can change last
bits (another processor, thread count or version of PyTorch) is `not proven`: pairs are still
compared, with a caution. Another kind of device, or another version of the training or measuring
code, is `broken`: the arms were not treated equally.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Effect = Literal["broken", "not proven", "declared"]
Environment = Mapping[str, Any]

# Of these no number of a trial depends: they hold records, analyse them, or (our own version) are
# stated more exactly by the digest of the source.
WITHOUT_EFFECT = frozenset({"paribus", "pyarrow", "safetensors", "scipy"})
ROUNDING = ("processor", "threads", "instructions", "kernels")
# What must be equal for a trial to give the same bits again.
SAME_BITS = ("packages", "python", "processor", "instructions", "device", "threads", "kernels")


def differences(
    own: Environment, reference: Environment, *, pair: bool = False
) -> dict[str, tuple[Effect, str]]:
    """Return the differences between two trials' environment.json: {name: (effect,
    description)}.

    `pair` is True for an arm and its reference at one seed. Scores at different seeds are never
    compared with each other, so without `pair` a difference that may change last bits is only
    `declared`, and stack sizes may differ.
    """
    effects: dict[str, tuple[Effect, str]] = {}

    def note(name: str, effect: Effect, ours: Any, theirs: Any, words: str = "") -> None:
        if ours != theirs:
            effects[name] = effect, words or f"{name} {ours} against {theirs}"

    rounds: Effect = "not proven" if pair else "declared"
    source = "the source of paribus that trains and measures is another"
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
                effects[f"resumed: {name}"] = effect, f"training was continued elsewhere: {words}"
    return effects


def _kind(environment: Environment) -> str:
    """Return the kind of device: "cpu", "mps" or "cuda"; for a GPU its name is recorded."""
    name = str(environment.get("device"))
    return name if name in ("cpu", "mps") else "cuda"
