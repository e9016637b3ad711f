"""A trained model as the LM Evaluation Harness sees it. Imports the harness: load it when needed.

Log-likelihoods of continuations, from logits in float32. Context and continuation are split exactly
where the task splits them wherever the tokenizer allows it; the harness would otherwise move white
space at the end of a context to the continuation, which serves tokenizers that join it to the next
word.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from torch import nn

from paribus.engine.data import STAND_INS, Tokenizer
from paribus.engine.evaluation.harness.scoring import Pair, Plan, plan, score
from paribus.errors import ParibusError

Unknown = Literal["skip", "replace"]


class _Prepared(NamedTuple):
    """Requests as they are scored: by their texts, a number for each pair of the plan."""

    arguments: list[Any]
    numbers: list[int]
    plan: Plan


class ParibusLM(TemplateLM):
    """`model` with its tokenizer, as an `lm_eval` model; world size 1.

    `model` may be set to another of its structure, on its device, which is asked the same requests:
    texts are then not made into tokens again.

    Args:
        model: tokens [B, T] -> logits [B, T, V].
        tokenizer: the one it was trained with.
        seq_len: tokens in its window.
        unknown: characters outside the vocabulary. "skip" gives the request no score (NaN, or no
            text) and counts it; "replace" puts a stand-in and counts the request.
        truncate: leave out the beginning of a context that is too long, and count the request,
            instead of refusing it. A choice that is longer than the window is then read window by
            window.

    Attributes:
        skipped, replaced, truncated: the requests of each kind, as (task, item), in order.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Tokenizer,
        seq_len: int,
        *,
        unknown: Unknown = "skip",
        truncate: bool = False,
    ) -> None:
        super().__init__()
        if unknown not in ("skip", "replace"):
            raise ParibusError(
                f"unknown = '{unknown}' is no policy for unknown characters; use skip or replace"
            )
        self.model = model
        self.tokenizer: Any = tokenizer
        self.max_length = seq_len
        self.unknown = unknown
        self.truncate = truncate
        self.skipped: list[tuple[str, int]] = []
        self.replaced: list[tuple[str, int]] = []
        self.truncated: list[tuple[str, int]] = []
        self._known: dict[str, bool] = {}
        self._prepared: _Prepared | None = None
        self._n_tokens: dict[tuple[str, str], int] = {}

    @property
    def eot_token_id(self) -> int:
        """The token before a text that has none: end of document, or else a line break or space."""
        if self.tokenizer.end_of_document is not None:
            return self.tokenizer.end_of_document
        for character in "\n ":
            if self._is_known(character):
                return int(self.tokenizer.encode(character)[0])
        raise ParibusError(
            "a request without context needs a token to start from, and the vocabulary has no end "
            "of document, line break or space; give every item a context"
        )

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any):
        """Return token ids; `add_special_tokens` has no meaning here."""
        return [int(token) for token in self.tokenizer.encode(string)]

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        whole, start = self.tok_encode(context + continuation), self.tok_encode(context)
        if 0 < len(start) < len(whole) and whole[: len(start)] == start:
            return start, whole[len(start) :]
        pair = super()._encode_pair(context, continuation)
        # Where one token spans the boundary, what is left of the split may be nothing.
        return pair if all(pair) else (start, self.tok_encode(continuation))

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = True
    ) -> list[tuple[float, bool]]:
        """Return (summed log-probability in nats, whether greedy) of every continuation.

        Without a context it follows `eot_token_id`, also where it begins with that token itself.
        """
        prepared = self._prepare(requests)
        results: list[tuple[float, bool]] = [(float("nan"), False)] * len(requests)
        for number in prepared.numbers:
            results[number] = (0.0, True)
        for number, scored in zip(prepared.numbers, score(self.model, prepared.plan), strict=True):
            total, greedy = results[number]
            results[number] = (total + scored.loglikelihood, greedy and scored.greedy)
        return results

    def _prepare(self, requests: list[Instance]) -> _Prepared:
        """Return what does not depend on weights; kept for a model that is asked the same."""
        arguments = [request.arguments for request in requests]
        if self._prepared is not None and self._prepared.arguments == arguments:
            return self._prepared
        numbers, pairs = [], []
        for number, request in enumerate(requests):
            context, continuation = request.arguments
            if not continuation:
                raise ParibusError(f"{_where(request)} has a choice of zero length; mend the task")
            texts = self._readable(request, context, continuation)
            if texts is not None:
                of_request = self._pairs(request, *texts)
                numbers += [number] * len(of_request)
                pairs += of_request
        self._prepared = _Prepared(arguments, numbers, plan(self.model, pairs))
        return self._prepared

    def _pairs(self, request: Instance, context: str, continuation: str) -> list[Pair]:
        """Return one pair, or one for each window of a continuation longer than the window."""
        if context:
            start, end = self._encode_pair(context, continuation)
            self._n_tokens[context, continuation] = len(end)
        else:
            start, end = [self.prefix_token_id], self.tok_encode(continuation)
        # The last token is predicted and not read, so one more than the window fits.
        spare = len(start) + len(end) - (self.max_length + 1)
        if spare > 0:
            if not self.truncate:
                raise ParibusError(
                    f"{_where(request)} has {len(start) + len(end)} tokens with its choice, and "
                    f"the model's window holds {self.max_length}; use fewer solved examples or "
                    "shorter items"
                )
            self.truncated.append(_key(request))
            if spare >= len(start):
                return self._windows(end, prefix=start[-1])
            start = start[spare:]
        return [Pair(np.array(start, np.int64), np.array(end, np.int64))]

    def _windows(self, tokens: list[int], prefix: int) -> list[Pair]:
        """Return all of `tokens` after `prefix` in the harness's windows, each predicted once."""
        windows = get_rolling_token_windows(
            token_list=tokens, prefix_token=prefix, max_seq_len=self.max_length, context_len=1
        )
        return [
            Pair(np.array(start, np.int64), np.array(end, np.int64))
            for start, end in map(make_disjoint_window, windows)
        ]

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise ParibusError(
            "a task asks for the log-likelihood of whole texts, or for generated text, and here "
            "choices alone are scored; export the trial and run lm_eval on the folder"
        )

    loglikelihood_rolling = generate_until = _loglikelihood_tokens = _refuse

    def _readable(self, request: Instance, *texts: str) -> tuple[str, ...] | None:
        """Return `texts` as the tokenizer can read them, or None where they are to be skipped."""
        unknown = self._unknown_in(texts)
        if not unknown:
            return texts
        if self.unknown == "skip":
            self.skipped.append(_key(request))
            return None
        self.replaced.append(_key(request))
        return self._with_stand_ins(unknown, texts)

    def n_tokens(self, context: str, continuation: str) -> int:
        """Count the tokens of `continuation` that are scored after `context`."""
        texts = (context, continuation)
        if texts not in self._n_tokens:
            unknown = self._unknown_in(texts)
            readable = self._with_stand_ins(unknown, texts) if unknown else texts
            self._n_tokens[texts] = len(self._encode_pair(*readable)[1])
        return self._n_tokens[texts]

    def _unknown_in(self, texts: tuple[str, ...]) -> set[str]:
        characters = {character for text in texts for character in set(text)}
        return {character for character in characters if not self._is_known(character)}

    def _with_stand_ins(self, unknown: set[str], texts: tuple[str, ...]) -> tuple[str, ...]:
        table = str.maketrans(dict.fromkeys(unknown, self._stand_in_character()))
        return tuple(text.translate(table) for text in texts)

    def _is_known(self, character: str) -> bool:
        if character not in self._known:
            try:
                self.tokenizer.encode(character)
                self._known[character] = True
            except ParibusError:
                self._known[character] = False
        return self._known[character]

    def _stand_in_character(self) -> str:
        for character in STAND_INS:
            if self._is_known(character):
                return character
        raise ParibusError(
            f"the vocabulary has none of {STAND_INS!r} to stand for an unknown character; "
            "use the policy skip"
        )


def _key(request: Instance) -> tuple[str, int]:
    return str(request.task_name), int(request.doc_id or 0)


def _where(request: Instance) -> str:
    task, item = _key(request)
    return f"task '{task}', item {item},"
