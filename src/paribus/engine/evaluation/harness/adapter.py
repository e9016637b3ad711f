"""A trained model as the LM Evaluation Harness sees it. Imports the harness: load it when needed.

Log-likelihoods of continuations, from logits in float32. Context and continuation are split exactly
where the task splits them wherever the tokenizer allows it; the harness would otherwise move white
space at the end of a context to the continuation, which serves tokenizers that join it to the next
word.
"""

from __future__ import annotations

from typing import Any, Literal, NoReturn

import numpy as np
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from torch import nn

from paribus.engine.data import STAND_INS, Tokenizer
from paribus.engine.evaluation.harness.outcome import UNREAD
from paribus.engine.evaluation.harness.scoring import Pair, score
from paribus.errors import ParibusError

Unknown = Literal["skip", "replace"]


class ParibusLM(TemplateLM):
    """`model` with its tokenizer, as an `lm_eval` model; world size 1.

    Args:
        model: tokens [B, T] -> logits [B, T, V].
        tokenizer: the one it was trained with.
        seq_len: tokens in its window.
        unknown: characters outside the vocabulary. "skip" gives the request no score (NaN);
            "replace" puts a stand-in.

    A context that is too long loses its beginning; a choice that is longer than the window is read
    window by window.

    Attributes:
        unread: "skipped", "replaced" and "truncated" items, as (task, item).
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Tokenizer,
        seq_len: int,
        *,
        unknown: Unknown = "skip",
    ) -> None:
        super().__init__()
        self.model = model
        self.tokenizer: Any = tokenizer
        self.max_length = seq_len
        self.unknown = unknown
        self.unread: dict[str, set[tuple[str, int]]] = {kind: set() for kind in UNREAD}

    @property
    def eot_token_id(self) -> int:
        """The token before a text that has none: end of document, or else a line break or space."""
        if self.tokenizer.end_of_document is not None:
            return self.tokenizer.end_of_document
        for character in "\n ":
            if not self.tokenizer.unknown_in(character):
                return int(self.tokenizer.encode(character)[0])
        raise ParibusError(
            "a request without context needs a token to start from, and the vocabulary has no end "
            "of document, line break or space; give every item a context",
            code="unsupported",
        )

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any):
        """Return token ids; `add_special_tokens` has no meaning here."""
        return [int(token) for token in self.tokenizer.encode(string)]

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        if not context:
            return [self.prefix_token_id], self.tok_encode(continuation)
        joined, start = self.tok_encode(context + continuation), self.tok_encode(context)
        if 0 < len(start) < len(joined) and joined[: len(start)] == start:
            return start, joined[len(start) :]
        pair = super()._encode_pair(context, continuation)
        # Where one token spans the boundary, what is left of the split may be nothing.
        return pair if all(pair) else (start, self.tok_encode(continuation))

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = True
    ) -> list[tuple[float, bool]]:
        """Return (summed log-probability in nats, whether greedy) of every continuation.

        Without a context it follows `eot_token_id`, also where it begins with that token itself.
        """
        results: list[tuple[float, bool]] = [(float("nan"), False)] * len(requests)
        numbers, pairs = list[int](), list[Pair]()
        for number, request in enumerate(requests):
            if texts := self._readable(request):
                windows = self._windows(request, *self._encode_pair(*texts))
                numbers += [number] * len(windows)
                pairs += windows
                results[number] = (0.0, True)
        for number, scored in zip(numbers, score(self.model, pairs), strict=True):
            total, greedy = results[number]
            results[number] = (total + scored.loglikelihood, greedy and scored.greedy)
        return results

    def _windows(self, request: Instance, start: list[int], end: list[int]) -> list[Pair]:
        """Return one pair, or one for each window of a continuation longer than the window."""
        # The last token is predicted and not read, so one more than the window fits.
        spare = max(len(start) + len(end) - (self.max_length + 1), 0)
        windows = [(start[spare:], end)]
        if spare:
            self.unread["truncated"].add(_key(request))
            if spare >= len(start):  # each token is predicted once, in the harness's windows
                rolling = get_rolling_token_windows(end, start[-1], self.max_length, context_len=1)
                windows = map(make_disjoint_window, rolling)
        return [Pair(*(np.array(ids, np.int64) for ids in window)) for window in windows]

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise ParibusError(
            "a task asks for the log-likelihood of whole texts, or for generated text, and here "
            "choices alone are scored; export the trial and run lm_eval on the folder",
            code="unsupported",
        )

    loglikelihood_rolling = generate_until = _loglikelihood_tokens = _refuse

    def _readable(self, request: Instance) -> tuple[str, str] | None:
        """Return the texts as the tokenizer can read them, or None where they are skipped."""
        context, continuation = request.arguments
        unknown = self.tokenizer.unknown_in(context + continuation)
        if not unknown:
            return context, continuation
        if self.unknown == "skip":
            self.unread["skipped"].add(_key(request))
            return None
        self.unread["replaced"].add(_key(request))
        stand_in = next((c for c in STAND_INS if not self.tokenizer.unknown_in(c)), None)
        if stand_in is None:
            raise ParibusError(
                f"the vocabulary has none of {STAND_INS!r} to stand for an unknown character; "
                "use the policy skip",
                code="unsupported",
            )
        table = str.maketrans(dict.fromkeys(unknown, stand_in))
        return context.translate(table), continuation.translate(table)


def _key(request: Instance) -> tuple[str, int]:
    return str(request.task_name), int(request.doc_id or 0)
