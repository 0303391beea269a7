"""Tokens that a rollout draws among: those of given texts, of plans, or of the values of a JSON schema."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from posttrain.component import nearest
from posttrain.engines import Matcher, Sampler, TokenSampler, Watch
from posttrain.engines._pieces import Next, Pieces, Vocabulary, allowed_of, one_of
from posttrain.engines._schemas import Schemas, json_grammar
from posttrain.errors import UserError
from posttrain.errors.foreign import parse_json
from posttrain.grading.schemas import schema_fault
from posttrain.types import Segment, Task

_PIECES: dict[object, Pieces] = {}
_SCHEMAS: dict[object, "Allowed"] = {}
"""The last ones, with their masks."""
_MOST = 8


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a completion may be, for one tokenizer."""

    vocabulary: Vocabulary
    watch: Watch
    """Log-probabilities are those among allowed tokens."""

    @classmethod
    def of_pieces(cls, follow: Next, sampler: TokenSampler, key: object = None) -> "Allowed":
        """Completions of pieces, whose masks are kept under a key."""
        vocabulary = Vocabulary.of(sampler)
        pieces = _PIECES.get(own := (id(vocabulary), key))
        if pieces is None or key is None or pieces.vocabulary is not vocabulary:
            pieces = Pieces(follow, vocabulary)
            if key is not None:
                _trim(_PIECES)
                _PIECES[own] = pieces
        return cls(vocabulary, Watch(matcher=pieces.matcher, masked=True))

    @classmethod
    def of_texts(cls, texts: Sequence[str], sampler: TokenSampler) -> "Allowed":
        """One of several texts."""
        return cls.of_pieces(one_of(texts), sampler, tuple(texts))

    @classmethod
    def of_schema(cls, schema: Mapping[str, Any], sampler: TokenSampler) -> "Allowed":
        """A value of a JSON schema. Raises `UserError`."""
        vocabulary = Vocabulary.of(sampler)
        key = (id(vocabulary), json.dumps(schema))
        if key not in _SCHEMAS or _SCHEMAS[key].vocabulary is not vocabulary:
            matcher = Schemas().matchers(lambda: json_grammar(schema), sampler, "no completion can follow a schema")
            _trim(_SCHEMAS)
            _SCHEMAS[key] = cls(vocabulary, Watch(matcher=matcher, masked=True))
        return _SCHEMAS[key]

    def noted(self, segment: Segment) -> Segment:
        """A sampled segment, with what was allowed at each token."""
        assert self.watch.matcher is not None
        matcher: Matcher = self.watch.matcher()
        return replace(
            segment,
            allowed=allowed_of(matcher, self.vocabulary.ends, segment.token_ids),
        )


def masked_sampler(role: str, sampler: Sampler) -> TokenSampler:
    """The sampler, if it takes masks. Raises `UserError`."""
    if not hasattr(sampler, "watched"):
        raise UserError(
            f"the model in the role '{role}' is behind an endpoint or an engine that takes no masks; name a "
            "local model, or take a rollout without allowed tokens, such as rollout=independent"
        )
    return cast(TokenSampler, sampler)


def schema_of(task: Task, column: str) -> Mapping[str, Any]:
    """The JSON schema in a column of a task. Raises `UserError`."""
    given = task.fields.get(column)
    try:
        schema = parse_json(given) if isinstance(given, str) else given
    except ValueError as error:
        raise UserError(f"task {task.key}: its column '{column}' is no JSON: {error}") from None
    if not isinstance(schema, Mapping):
        raise UserError(f"task {task.key} has no JSON schema in its column '{column}'; {nearest(column, task.fields)}")
    if fault := schema_fault(schema):
        raise UserError(f"task {task.key}: the schema in its column '{column}': {fault}")
    return schema


def _trim(kept: dict[object, Any]) -> None:
    while len(kept) >= _MOST:
        kept.pop(next(iter(kept)))
