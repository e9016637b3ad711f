"""Adapter that exposes a trained model as an `lm_eval` model.

Importing this module imports the harness. Log-likelihoods of continuations are computed from
float32 logits. If the tokenizer allows it, context and continuation are split exactly where the
task splits them. By default, the harness moves trailing whitespace from the context to the
continuation, which suits tokenizers that merge a space with the next word.
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
    """`lm_eval` model that wraps a trained model and its tokenizer, in a single process.

    Args:
        model: maps tokens [B, T] to logits [B, T, V].
        tokenizer: tokenizer that the model was trained with. Unknown characters are replaced by the
            first known one in STAND_INS, or dropped if none is known, as in exported models.
        seq_len: the model's context length, in tokens. A context that is too long is truncated on
            the left; a continuation longer than the window is scored window by window.
    """

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, seq_len: int) -> None:
        super().__init__()
        self.model = model
        self.tokenizer: Any = tokenizer
        self.max_length = seq_len

    @property
    def eot_token_id(self) -> int:
        """Token id that replaces an empty context: end of document, line break or space.

        Raises ParibusError if the vocabulary contains none of them.
        """
        if self.tokenizer.end_of_document is not None:
            return self.tokenizer.end_of_document
        for character in "\n ":
            if not self.tokenizer.unknown_in(character):
                return int(self.tokenizer.encode(character)[0])
        raise ParibusError(
            "a request without context needs a start token, but the vocabulary has no "
            "end-of-document token, line break or space; add a context to every item",
            code="unsupported",
        )

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any):
        """Tokenize `string` without adding special tokens."""
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
        """Split a request into pairs that fit into the model's window.

        Args:
            start: token ids of the context.
            end: token ids of the continuation.
        """
        # The last token is predicted and not read, so one more than the window fits.
        spare = max(len(start) + len(end) - (self.max_length + 1), 0)
        windows = [(start[spare:], end)]
        if spare >= len(start):  # each token is predicted once, in the harness's windows
            rolling = get_rolling_token_windows(end, start[-1], self.max_length, context_len=1)
            windows = map(make_disjoint_window, rolling)
        return [Pair(*(np.array(ids, np.int64) for ids in window)) for window in windows]

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise ParibusError(
            "a task requests generated text or log-likelihoods of whole texts, but only "
            "continuations of a context can be scored; export the trial and run lm_eval on the "
            "exported folder",
            code="unsupported",
        )

    loglikelihood_rolling = generate_until = _refuse
