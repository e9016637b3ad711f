"""Comparison of the trials' software and hardware, by the effect of differences on results.

A difference is `declared` if it cannot change results, such as another Python version. It is
`not proven` if it can change rounding, such as another processor or PyTorch version; pairs are then
compared with a warning. It is `broken` if arms were treated unequally, because of another type of
device or another version of the training or evaluation code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    """Compare the environments of two trials, and return {name: (effect, description)}.

    Args:
        own: content of environment.json for one trial.
        reference: content of environment.json for the other trial.
        pair: whether the trials are an arm and its reference at the same seed. Only then are
            their scores compared, so that differences in rounding and stack size matter.
    """
    effects: dict[str, tuple[Effect, str]] = {}
    both = own, reference

    def note(name: str, effect: Effect, values: Iterable[Any]) -> None:
        ours, theirs = values
        if ours != theirs:
            effects[name] = effect, f"{name} {ours} against {theirs}"

    rounds: Effect = "not proven" if pair else "declared"
    if own.get("code") != reference.get("code"):
        source = "the code of paribus that trains and measures is different"
        effects["code"] = "broken", source
    note("device", rounds, (each.get("device") for each in both))
    note("device", "broken", map(_kind, both))
    packages = [each.get("packages") or {} for each in both]
    for name in sorted({**packages[0], **packages[1]}):
        versions = (known.get(name, "none") for known in packages)
        note(name, "declared" if name in WITHOUT_EFFECT else rounds, versions)
    note("Python", "declared", (each.get("python") for each in both))
    for name in (*ROUNDING, *(("stack",) if pair else ())):
        note(name, rounds, (each.get(name) for each in both))
    note("ranks", rounds, (each.get("ranks", "one device") for each in both))
    for environment in both:
        for earlier in environment.get("resumed_from", ()):
            last = {**environment, "resumed_from": ()}
            for name, (effect, words) in differences(last, last | earlier, pair=pair).items():
                effects[f"resumed: {name}"] = effect, f"training was resumed elsewhere: {words}"
    return effects


def _kind(environment: Environment) -> str:
    """Return the type of device: "cpu", "mps", or "cuda" for any other device name."""
    name = str(environment.get("device"))
    return name if name in ("cpu", "mps") else "cuda"
