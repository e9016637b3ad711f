"""A trained model as an `lm_eval` model. Importing this module loads the harness.

Log-likelihoods of continuations, from logits in float32. Context and continuation are split exactly
where the task splits them wherever the tokenizer allows it; the harness would otherwise move white
space at the end of a context to the continuation, which serves tokenizers that join it to the next
word.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from torch import nn

from paribus.engine.data import STAND_INS, Tokenizer
from paribus.engine.evaluation.harness.scoring import Pair, score
from paribus.errors import ParibusError


class ParibusLM(TemplateLM):
    """A trained model and its tokenizer as an `lm_eval` model, in a single process.

    Args:
        model: tokens [B, T] -> logits [B, T, V].
        tokenizer: the tokenizer of its training. Unknown characters are replaced by a stand-in, or
            dropped if none exists, as in an exported model.
        seq_len: tokens in its window. A context that is too long loses its beginning; a choice
            longer than the window is read window by window.
    """

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, seq_len: int) -> None:
        super().__init__()
        self.model = model
        self.tokenizer: Any = tokenizer
        self.max_length = seq_len

    @property
    def eot_token_id(self) -> int:
        """Token that replaces an empty context: end of document, else a line break or space."""
        if self.tokenizer.end_of_document is not None:
            return self.tokenizer.end_of_document
        for character in "\n ":
            if not self.tokenizer.unknown_in(character):
                return int(self.tokenizer.encode(character)[0])
        raise ParibusError(
            "a request without context needs a token to start from, but the vocabulary has no end "
            "of document, line break or space; give every item a context",
            code="unsupported",
        )

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any):
        """Return token ids; `add_special_tokens` is ignored."""
        if unknown := self.tokenizer.unknown_in(string):
            stand_in = next((c for c in STAND_INS if not self.tokenizer.unknown_in(c)), "")
            string = string.translate(str.maketrans(dict.fromkeys(unknown, stand_in)))
        return [int(token) for token in self.tokenizer.encode(string)]

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        joined, start = self.tok_encode(context + continuation), self.tok_encode(context)
        if 0 < len(start) < len(joined) and joined[: len(start)] == start:
            return start, joined[len(start) :]
        pair = super()._encode_pair(context, continuation)
        # Where one token spans the boundary, what is left of the split may be nothing.
        return pair if all(pair) else (start, self.tok_encode(continuation))

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        windows = [self._windows(start, end) for _, start, end in requests]
        scores = iter(score(self.model, [pair for of_request in windows for pair in of_request]))
        results = []
        for of_request in windows:
            own = [next(scores) for _ in of_request]
            results.append((sum(x.loglikelihood for x in own), all(x.greedy for x in own)))
        return results

    def _windows(self, start: list[int], end: list[int]) -> list[Pair]:
        """Return one pair, or one for each window of a continuation longer than the window."""
        # The last token is predicted and not read, so one more than the window fits.
        spare = max(len(start) + len(end) - (self.max_length + 1), 0)
        windows = [(start[spare:], end)]
        if spare >= len(start):  # each token is predicted once, in the harness's windows
            rolling = get_rolling_token_windows(end, start[-1], self.max_length, context_len=1)
            windows = map(make_disjoint_window, rolling)
        return [Pair(*(np.array(ids, np.int64) for ids in window)) for window in windows]

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise ParibusError(
            "a task asks for log-likelihoods of whole texts or for generated text, but here only "
            "choices are scored; export the trial and run lm_eval on the folder",
            code="unsupported",
        )

    loglikelihood_rolling = generate_until = _refuse
