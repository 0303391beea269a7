"""Tokenizers of SentencePiece in GGUF files (``tokenizer.ggml.model`` is ``llama``), as byte-pair encodings.

SentencePiece joins the neighbours whose piece has the highest score, and the leftmost of equal ones. A byte-pair
encoding joins by the rank of a pair: every way to divide a piece into two others is a pair here, ranked by the score of
the piece. Characters that no piece has are bytes.

Differs: of two ways to make the same piece that overlap in a text, the better ranked one is taken, not the leftmost.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers

from posttrain.errors.foreign import shown

SPACE = "\u2581"
"""Stands for a space in pieces."""
MOST_WORK = 100_000_000
"""Sum of the squared lengths of pieces: Llama's 32,000 have 2 million, Gemma's 256,000 have 16 million."""
_KEY = "tokenizer.ggml"


def backend_of(metadata: Mapping[str, Any], tokens: Sequence[str], normal: Sequence[bool]) -> Tokenizer:
    """The tokenizer of the library. `normal` states which tokens are pieces of texts.

    Raises `ValueError` for metadata that are none of SentencePiece.
    """
    if metadata.get(f"{_KEY}.remove_extra_whitespaces"):
        raise ValueError("it removes white space that is there twice, so texts could not be given back as they are")
    scores = metadata.get(f"{_KEY}.scores")
    if not isinstance(scores, list) or len(scores) < len(tokens) or not all(isinstance(s, float) for s in scores):
        raise ValueError(f"{_KEY}.scores is {shown(repr(scores), 60)}; it is a number for each token")
    if any(map(math.isnan, scores)):
        raise ValueError(f"{_KEY}.scores has values that are no numbers")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    unknown = metadata.get(f"{_KEY}.unknown_token_id", 0)
    backend = Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=_merges(tokens, normal, scores),
            unk_token=tokens[unknown] if isinstance(unknown, int) and 0 <= unknown < len(tokens) else None,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    spaces = normalizers.Replace(" ", SPACE)
    parts = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if metadata.get(f"{_KEY}.add_space_prefix", True):  # before every text, so that words there are as others
        backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces])
        parts.append(decoders.Strip(" ", 1, 0))
    else:
        backend.normalizer = spaces
    backend.decoder = decoders.Sequence(parts)
    return backend


def _merges(tokens: Sequence[str], normal: Sequence[bool], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Every pair of pieces that is a piece, by the score of that piece, then by the ids of the two."""
    pieces = {token: number for number, token in enumerate(tokens) if normal[number]}
    work = sum(len(piece) ** 2 for piece in pieces)
    if work > MOST_WORK:
        raise ValueError(
            f"its pieces are longer than those of a vocabulary, up to {max(map(len, pieces)):,} characters"
        )
    found = []
    for piece, number in pieces.items():
        for at in range(1, len(piece)):
            left, right = pieces.get(piece[:at]), pieces.get(piece[at:])
            if left is not None and right is not None:
                found.append((-scores[number], left, right))
    return [(tokens[left], tokens[right]) for _, left, right in sorted(found)]
