"""The paper's related work: what the works of references.bib are cited for, and no figures.

A paragraph stands in the paper only where the study is about it.
"""

from __future__ import annotations

from collections.abc import Sequence

from paribus.report.paper.document import Block, Cite, Part, say
from paribus.report.paper.material import Material
from paribus.study import LEARNING_RATE

NORMALISED_EMBEDDINGS = (
    say(
        "Normalising embeddings is a live question. Layer normalization after the embedding layer "
        "was found to cost zero-shot generalization at the scale of a billion parameters ",
        Cite("LeScao2022"),
        ". It was put into a much larger multilingual model after instabilities in half "
        "precision, with the remark that bfloat16 may remove the need ",
        Cite("BLOOM"),
        "; another large model reports that it stabilises training at a downstream cost ",
        Cite("GLM130B"),
        ". Scaled embeddings and embedding normalization have been proposed against loss spikes ",
        Cite("Takase2023"),
        ", and a “stable embedding” that joins another initialization, LayerNorm before positions "
        "are added, and optimizer state in full precision, three changes at once ",
        Cite("Dettmers2021"),
        ".",
    ),
    say(
        "These works normalise token embeddings before positions are added ",
        Cite("LeScao2022"),
        Cite("Dettmers2021"),
        "; an arm that normalises the sum of both is another intervention. The norms themselves "
        "are LayerNorm ",
        Cite("LayerNorm"),
        " and RMSNorm ",
        Cite("RMSNorm"),
        ", which does not remove the mean.",
    ),
)

MODIFICATIONS = say(
    "Most modifications of the Transformer did not transfer across implementations and "
    "applications when they were compared under one roof ",
    Cite("Narang2021"),
    ", and architectures and objectives have been compared at matched compute ",
    Cite("Wang2022"),
    ". Where the normalization stands in a block changes how a Transformer trains ",
    Cite("Xiong2020"),
    ".",
)

LEARNING_RATES = say(
    "Sensitivity to the learning rate in small models is a proxy for instabilities of large ones ",
    Cite("Wortsman2023"),
    ".",
)

SEEDS = say(
    "Benchmarks of learning algorithms vary with more than the seed of the initialization ",
    Cite("Bouthillier2021"),
    ", pre-training runs of language models vary between seeds ",
    Cite("PolyPythias"),
    ", and few runs call for interval estimates ",
    Cite("Agarwal2021"),
    ". At small scale, perplexity is a more reliable endpoint than accuracy on benchmarks ",
    Cite("SignalNoise"),
    ".",
)


def related(studies: Sequence[Material]) -> Part:
    """The section, with the paragraphs that the studies are about."""
    blocks: list[Block] = []
    if any(one.normalises_embeddings for one in studies):
        blocks += NORMALISED_EMBEDDINGS
    blocks.append(MODIFICATIONS)
    if any(one.study.tuning and LEARNING_RATE in one.study.tuning.keys for one in studies):
        blocks.append(LEARNING_RATES)
    return Part("Related work", [*blocks, SEEDS])
