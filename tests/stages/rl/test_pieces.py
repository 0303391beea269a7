"""Completions in pieces: what is asked of the model, joins, stop strings over two pieces, what is answered again."""

import asyncio
from typing import Any

import numpy as np

from posttrain.engines import Sampling
from posttrain.stages.rl.flight import Flight
from posttrain.stages.rl.pieces import PiecedSampler, Progress, plain_answers, read_answers
from posttrain.types import Completion, Group
from tests.builders import ScriptedSampler, task

TEXT = b"abcdefghij"


class Alphabet(ScriptedSampler):
    """Writes the alphabet on from the end of its prompt, up to j; its version can be changed."""

    version_now = 0
    asked_for: list[tuple[tuple[int | str, ...], str, int]] = []  # noqa: RUF012

    def bind(self, *key: int | str) -> "Alphabet":
        return Alphabet(*self.key, *key)

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        await asyncio.sleep(0)
        begun = "".join(chr(i) for i in token_ids if i > 1)
        self.asked_for.append((self.key, begun, sampling.max_tokens))
        rest = TEXT[len(begun) :]
        ids = np.frombuffer(rest[: sampling.max_tokens], np.uint8).astype(np.int64)
        ended = len(ids) == len(rest)
        return [
            Completion(
                token_ids=ids,
                logp=-ids.astype(np.float32),
                stop_reason="stop" if ended else "length",
                version=Alphabet.version_now,
                text=self.decode(ids),
            )
            for _ in range(n)
        ]


def written(sampling: Sampling, piece: int, n: int = 1, answers: Any = None) -> tuple[list[Completion], Progress, int]:
    """The completions of the prompt "ab", the answers of their group, and the number of rounds."""
    Alphabet.asked_for.clear()
    flight, progress, found = Flight(), Progress(number=0, answers=answers or {}), list[Completion]()
    sampler = PiecedSampler(Alphabet("key"), "policy", progress, flight.gate, piece)

    async def work() -> list[Group]:
        found.extend(await sampler.sample(np.array([1, 97, 98]), n, sampling))
        return []

    from posttrain.components.curricula import Pick

    flight.begin(progress, Pick(task=task()), 0, work())
    rounds = 0
    while flight.flown:
        flight.gate.step = Alphabet.version_now = rounds
        flight.go(lambda asked: True)
        rounds += 1
    flight.close()
    Alphabet.version_now = 0
    return found, progress, rounds


def test_a_piece_as_long_as_the_completion_is_the_model_itself() -> None:
    [found], _, rounds = written(Sampling(max_tokens=4), 32)
    assert (found.text, found.stop_reason, rounds) == ("cdef", "length", 1)
    assert Alphabet.asked_for == [(("key",), "ab", 4)]


def test_pieces_are_asked_for_with_what_was_written_and_joined() -> None:
    """Eight tokens in pieces of three: the last is asked for the room that is left, and ends with the text's end."""
    [found], progress, rounds = written(Sampling(max_tokens=8), 3)
    assert Alphabet.asked_for == [
        (("key",), "ab", 3),
        (("key", "piece", 0, 3), "abcde", 3),
        (("key", "piece", 0, 6), "abcdefgh", 2),
    ]
    assert found.token_ids.tolist() == list(TEXT[2:])
    assert found.logp.tolist() == [-float(i) for i in TEXT[2:]]
    assert (found.stop_reason, found.text, found.version, rounds) == ("stop", "cdefghi", 0, 3), "j is the end token"
    assert progress.spans == [[0, 3], [1, 3], [2, 2]]


def test_a_stop_string_may_span_two_pieces() -> None:
    [found], *_ = written(Sampling(max_tokens=8, stop=("ef",)), 3)
    assert (found.text, found.stop_reason, found.token_ids.tolist()) == ("cd", "stop", list(b"cdef"))


def test_completions_of_a_request_begin_together() -> None:
    found, progress, rounds = written(Sampling(max_tokens=5), 3, n=2)
    assert [c.text for c in found] == ["cdefg", "cdefg"] and rounds == 2
    assert [key for key, *_ in Alphabet.asked_for] == [("key",), ("key", "piece", 0, 3), ("key", "piece", 1, 3)]
    assert progress.spans == [[0, 6], [1, 4]]


def test_what_was_answered_is_not_sampled_again() -> None:
    whole, progress, _ = written(Sampling(max_tokens=8), 3)
    kept = read_answers(plain_answers(progress))
    kept.popitem()
    again, _, rounds = written(Sampling(max_tokens=8), 3, answers=kept)
    assert [begun for _, begun, _ in Alphabet.asked_for] == ["abcdefgh"] and rounds == 1
    assert again[0].token_ids.tolist() == whole[0].token_ids.tolist()


def test_a_full_context_ends_a_completion() -> None:
    Alphabet.context = 8
    try:
        [found], *_ = written(Sampling(max_tokens=8), 3)
    finally:
        Alphabet.context = ScriptedSampler.context
    assert (found.text, found.stop_reason) == ("cdefg", "length")
