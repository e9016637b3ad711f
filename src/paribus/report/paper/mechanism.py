"""Which part of normalising embeddings does what: read from what sets the arms apart."""

from __future__ import annotations

from collections.abc import Sequence

from paribus import numbers
from paribus.numbers import plural
from paribus.report.paper.document import Block, Grid, Part, Picture, Ref, say
from paribus.report.paper.judged import IN_WORDS, SHORT, TOLD, Judged, by_state, judged
from paribus.report.paper.material import Material
from paribus.report.table_model import Table
from paribus.report.tables import change_of
from paribus.report.words import listed

NORM, PLACE, TOKENS = (
    "model.embedding.norm",
    "model.embedding.norm_at",
    "model.init.token_std",
)
# What an arm isolates, by what sets it apart from its reference.
PARTS = {
    "layernorm": "scale, centring and gain (LayerNorm)",
    "rmsnorm": "scale and gain (RMSNorm)",
    "rms_free": "scale alone, of each vector",
    "fixed_scale": "a constant scale alone",
    "center": "centring alone",
}
OF_TOKENS = "LayerNorm before positions are added"
ONLY_PLACE = "place alone: normalised before positions are added, against LayerNorm"
AT_START = "scale at the start alone (initialization of token embeddings)"
AT_START_TIED = (
    "scale at the start alone (initialization of the token matrix, the output matrix too)"
)
WHOLE = (PARTS["layernorm"], PARTS["rmsnorm"])  # the norms that a part is taken from
WHILE_TRAINING = ("steps", "probes")
FIGURES = ("embedding_norm-all-mean", "residual-norm-depth")
LEAST_PARTS = 3  # of a study that takes normalization apart


def isolates(one: Judged, *, tied: bool = False) -> str:
    """Which part of normalising an arm has; empty where it has another difference.

    Where the token matrix is `tied` to the output's, another scale of it is one of the logits too.
    """
    stated = dict(one.treatment)
    norm, place = stated.pop(NORM, ""), stated.pop(PLACE, "sum")
    if place == "tokens" and not norm and not stated:
        return ONLY_PLACE
    starts = {key for key in stated if key.startswith("model.init.")}
    if norm and not stated:
        if place == "tokens":
            return OF_TOKENS if norm == "layernorm" else ""
        return PARTS.get(norm, "")
    at_start = AT_START_TIED if tied else AT_START
    return at_start if not norm and TOKENS in stated and starts == set(stated) else ""


def mechanism(studies: Sequence[Material], figures: int) -> Part | None:
    """The section; None where no study takes normalization apart and none has diagnostics."""
    blocks = _parts_of(studies)
    if elsewhere := parts_elsewhere(studies):
        blocks.append(say(elsewhere))
    blocks += _diagnostics(studies)
    shown = _study(studies)
    if shown is not None:
        prefix, material = shown
        drawn = [material.drawn[name] for name in FIGURES if name in material.drawn]
        blocks += [Picture(prefix + one.name, one.caption) for one in drawn[:figures]]
    return Part("Mechanism", blocks) if blocks else None


def _study(studies: Sequence[Material]) -> tuple[str, Material] | None:
    """(prefix of its figures, the study) that has the most parts of normalization."""
    # Of several the one that gave each arm its best values.
    known = [
        (len(_isolated(one)), one.study.tuning is not None, -i, one)
        for i, one in enumerate(studies)
    ]
    n, _, place, material = max(known, key=lambda one: one[:3])
    return (prefix_of(-place, len(studies)), material) if n else None


def prefix_of(place: int, n_studies: int) -> str:
    """What the names of a study's figures and tables begin with; nothing of a single study."""
    return f"s{place + 1}-" if n_studies > 1 else ""


def _isolated(material: Material) -> dict[str, list[Judged]]:
    found: dict[str, list[Judged]] = {}
    for one in judged(material):
        tied = material.study.setting(one.contrast.arm).model.head.tied
        if part := isolates(one, tied=tied):
            found.setdefault(part, []).append(one)
    return found


def _parts_of(studies: Sequence[Material]) -> list[Block]:
    """The table of the study that takes normalization apart the most, and what it says."""
    shown = _study(studies)
    if shown is None:
        return []
    _, material = shown
    found = _isolated(material)
    if len(found) < LEAST_PARTS:
        return []
    metric = material.study.primary.metric
    rows, told = [], []
    for part, arms in found.items():
        for one in arms:
            if one.metric == metric:
                change = change_of(one.contrast) if one.contrast.decided else one.contrast.why_not
                other = f", against {one.against}" if one.against and part != ONLY_PLACE else ""
                rows.append((f"{part}{other}", change, SHORT[one.state]))
                told.append((f"{part}{other}", one))
    label = material.analysis.metrics[metric].label
    table = Table(
        "parts",
        f"Parts of normalization in {material.name}: the change of {label} that an arm with this "
        "part alone makes, against the baseline where nothing else is said.",
        ("what the arm has", "change", "finding"),
        tuple(rows),
        frozenset({"what the arm has", "finding"}),
    )
    # Where arms stand in a chain the whole is not compared with the baseline: then part by part.
    compared = _compared(label, told) or mechanism_in_short(studies)
    opening = f"Arms of {material.name} have parts of normalization alone ("
    return [say(opening, Ref("parts"), f"). {compared}".rstrip()), Grid(table)]


def mechanism_in_short(studies: Sequence[Material]) -> str:
    """`Taken apart, centring alone is within the margin (...), ...`: what each part does by itself,
    and in one clause those on top of another; empty where no study takes normalization apart."""
    shown = _study(studies)
    if shown is None or len(found := _isolated(shown[1])) < LEAST_PARTS:
        return ""
    metric = shown[1].study.primary.metric
    on = [(part, one) for part, arms in found.items() for one in arms if one.metric == metric]
    known = [(part, one) for part, one in on if one.contrast.decided is not None]
    told = [
        f"{part} is {IN_WORDS[one.state]} ({_mean(one)})" for part, one in known if not one.against
    ]
    steps = [one for _, one in known if one.against]
    for state, group in by_state(steps).items():
        ends = sorted((one.contrast.decided.mean, _mean(one)) for one in group
                      if one.contrast.decided is not None)  # fmt: skip
        span = " to ".join(dict.fromkeys((ends[0][1], ends[-1][1])))
        what = f"{len(group)} further part{'s' if len(group) > 1 else ''} on top of another"
        if len(group) == 1:
            what = group[0].called
        told.append(f"{what} {'are' if len(group) > 1 else 'is'} {IN_WORDS[state]} ({span})")
    setting = shown[1].study.setting(shown[1].study.baseline)
    matrix = (
        "the token matrix as output matrix"
        if setting.model.head.tied
        else "an output matrix of its own"
    )
    where = f"over {setting.iterations:,} iterations with {matrix}"
    return f"Taken apart, {listed(told)}, all {where}."


def parts_elsewhere(studies: Sequence[Material]) -> str:
    """What the same parts do in the other studies that have them: a sentence for each study."""
    shown = _study(studies)
    if shown is None or len(_isolated(shown[1])) < LEAST_PARTS:
        return ""
    told = []
    for material in studies:
        if material is shown[1]:
            continue
        metric = material.study.primary.metric
        found = [
            f"{part}{f', against {one.against},' if one.against else ''} "
            f"({one.called.removesuffix(f' against {one.against}')}) is "
            f"{IN_WORDS[one.state]}, {change_of(one.contrast)}"
            for part, arms in _isolated(material).items()
            for one in arms
            if one.metric == metric and part not in WHOLE and one.state in TOLD
            and one.contrast.decided is not None
        ]  # fmt: skip
        if found:
            told.append(f"In {material.name} ({_apart(material, shown[1])}) {listed(found)}.")
    return " ".join(told)


def _apart(material: Material, shown: Material) -> str:
    """Where a study's setting differs from that of the one that is shown: its budget and shape."""
    mine, other = (one.study.setting(one.study.baseline) for one in (material, shown))
    facts = [
        (plural(mine.iterations, "iteration"), mine.iterations != other.iterations),
        (plural(mine.model.n_layer, "block"), mine.model.n_layer != other.model.n_layer),
        ("width " + str(mine.model.d_model), mine.model.d_model != other.model.d_model),
        (
            "an output matrix of its own" if not mine.model.head.tied else "tied embeddings",
            mine.model.head.tied != other.model.head.tied,
        ),
    ]
    return ", ".join(words for words, differs in facts if differs) or "a study of the same setting"


def _mean(one: Judged) -> str:
    says = one.contrast.decided
    return numbers.signed(says.mean if says else None, one.contrast.declared.change_digits)


def _compared(label: str, told: list[tuple[str, Judged]]) -> str:
    """Which parts come out as the whole does, and which do not."""
    whole = next((one for part, one in told if part == PARTS["layernorm"]), None)
    if whole is None:
        return ""
    alike = [part for part, one in told if one is not whole and one.state == whole.state]
    other = [(part, one) for part, one in told if one.state != whole.state]
    text = f"On {label}, LayerNorm is {SHORT[whole.state]}"
    if alike:
        text += f"; so {'are' if len(alike) > 1 else 'is'} {listed(alike)}"
    if other:
        text += f"; {listed([f'{part} is {SHORT[one.state]}' for part, one in other])}"
    return (
        f"{text}. Arms are compared with their reference and not with each other: that two have "
        "the same finding does not show that they are equal."
    )


def _diagnostics(studies: Sequence[Material]) -> list[Block]:
    """What was measured while training, study by study where it is an endpoint."""
    told: list[str] = []
    shown = _study(studies)
    chosen = [shown[1]] if shown else list(studies[:1])
    for material in chosen:
        for endpoint in material.study.endpoints:
            metric = material.analysis.metrics[endpoint.metric]
            if endpoint.primary or metric.record not in WHILE_TRAINING:
                continue
            summaries = [material.analysis.summary(arm, metric.name) for arm in material.study.arms]
            known = sorted((s for s in summaries if s.n), key=lambda s: s.mean or 0.0)
            if not known:
                continue
            unit = f" {metric.unit}" if metric.unit else ""
            low, high = known[0], known[-1]
            told.append(
                f"{metric.label} lay between "
                f"{numbers.mean_sd(low.mean, low.sd, metric.digits)}{unit} in "
                f"{material.called[low.arm]} and "
                f"{numbers.mean_sd(high.mean, high.sd, metric.digits)}{unit} in "
                f"{material.called[high.arm]}"
            )
    if not told:
        return []
    return [
        say(
            f"At the last step of {chosen[0].name}, {listed(told)}. Such diagnostics describe what "
            "went with a change; they do not show by themselves what it is due to."
        )
    ]
