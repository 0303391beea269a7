"""Scored held-out answers: every number by hand, from a model with given answers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.components.environments import Episode
from posttrain.components.environments.corridor import Corridor
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.components.rewards.verdict import Verdict
from posttrain.components.rollouts.abstracted import Abstracted
from posttrain.components.rollouts.independent import Independent
from posttrain.components.rollouts.turns import Turns
from posttrain.engines import Counters, Sampling
from posttrain.engines.native import Native
from posttrain.evaluation.greedy import Evaluated, evaluate, summarize
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.statistics.intervals import wilson
from posttrain.types import Completion, FloatArray, Group, IntArray, Message, Score, Segment, Task, Trajectory
from tests.builders import info_of
from tests.builders import trajectory as made

Answers = Mapping[str, tuple[str, Sequence[str]]]
"""By prompt: the greedy answer, and the sampled ones."""


class Book:
    """A model that answers from a table, and its server; records its requests."""

    counters = Counters()

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.requests: list[tuple[tuple[int | str, ...], str, int, Sampling]] = []

    def bind(self, *key: int | str) -> "Page":
        return Page(self, key)


class Page:
    """The book, open at a key."""

    def __init__(self, book: Book, key: tuple[int | str, ...]) -> None:
        self.book, self.key = book, key

    def bind(self, *key: int | str) -> "Page":
        return Page(self.book, (*self.key, *key))

    def prompt(self, task: Task) -> Segment:
        return Segment(actor="prompt", token_ids=self.encode(task.prompt), text=str(task.prompt))

    def encode(self, prompt: str | Sequence[Message]) -> IntArray:
        assert isinstance(prompt, str)
        return np.frombuffer(prompt.encode(), np.uint8).astype(np.int64)

    def decode(self, token_ids: IntArray) -> str:
        return bytes(token_ids.tolist()).decode()

    async def sample(
        self, token_ids: IntArray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        prompt = self.decode(token_ids)
        self.book.requests.append((self.key, prompt, n, sampling))
        greedy, sampled = self.book.answers[prompt]
        texts = [greedy] if sampling.temperature == 0 else sampled[:n]
        return [
            Completion(
                token_ids=self.encode(text),
                logp=np.zeros(len(text), np.float32),
                stop_reason="length" if text.endswith("...") else "stop",
                version=2,
                text=text,
            )
            for text in texts
        ]

    async def logp(
        self, token_ids: IntArray, *, temperature: float = 1.0, vectors: FloatArray | None = None
    ) -> FloatArray:
        raise NotImplementedError


class Marker(Reward):
    """Full marks for the reference answer, half for one that begins like it; cannot read question marks."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        return [self._mark(trajectory) for trajectory in group]

    def _mark(self, trajectory: Trajectory) -> Score:
        text, gold = trajectory.completion, str(trajectory.task.answer)
        if "?" in text:
            return failure("cannot be read")
        value = 1.0 if text == gold else 0.5 if text[:1] == gold[:1] else 0.0
        return Score(value=value, status="ok" if value == 1 else "wrong", answer=text)


def tasks_of(answers: Answers, golds: Sequence[str]) -> list[Task]:
    return [Task(key=f"key of {p}", prompt=p, answer=gold) for p, gold in zip(answers, golds, strict=True)]


def measure(answers: Answers, golds: Sequence[str], **settings: Any) -> tuple[Evaluated, Book]:
    book = Book(answers)
    evaluated = evaluate(book, tasks_of(answers, golds), Marker(), Evaluation(**settings), Sampling(max_tokens=9))
    return evaluated, book


GREEDY: Answers = {"a": ("cat", ()), "b": ("cow", ()), "c": ("dog", ()), "d": ("???", ()), "e": ("cat...", ())}


def test_numbers_by_hand() -> None:
    evaluated, _ = measure(GREEDY, ["cat", "cat", "cat", "cat", "emu"])
    summary = evaluated.summary
    assert summary["tasks"] == 5
    assert summary["correct"] == 1
    assert summary["errors"] == 1
    assert summary["accuracy"] == 1 / 4, "what could not be scored is neither correct nor wrong"
    assert summary["accuracy_interval"] == list(wilson(1, 4))
    assert summary["mean_score"] == (1 + 0.5 + 0 + 0) / 4
    assert summary["mean_tokens"] == (3 + 3 + 3 + 3 + 6) / 5
    assert summary["truncated"] == 1 / 5
    assert "pass_at_k" not in summary


class Walker(Page):
    """Goes forward when it is greedy; otherwise the second rollout does, and the first one stays."""

    context = 500

    def bind(self, *key: int | str) -> "Walker":
        return Walker(self.book, (*self.key, *key))

    def uniform(self) -> float:
        raise NotImplementedError

    def encode_reply(self, prompt: object, turn: IntArray, reply: Message) -> IntArray:
        return self.encode(reply["content"])

    async def sample(self, token_ids: IntArray, n: int, sampling: Sampling) -> list[Completion]:
        self.book.requests.append((self.key, self.decode(token_ids), n, sampling))
        text = "f" if sampling.temperature == 0 or self.key[-1] == 1 else "s"
        logp = np.zeros(1, np.float32)
        return [Completion(token_ids=self.encode(text), logp=logp, stop_reason="stop", version=2, text=text)]


class Walkers(Book):
    def bind(self, *key: int | str) -> Walker:
        return Walker(self, key)


def test_held_out_tasks_are_answered_in_the_environment_of_the_rollout() -> None:
    book = Walkers({})
    task = Task(key="five", prompt="Five.", fields={"cells": 5})
    turns = Turns(environment=Corridor(horizon=6), n=99, max_turns=6, sampling=Sampling(temperature=0.3))
    evaluated = evaluate(book, [task], Verdict(), Evaluation(samples=2), Sampling(max_tokens=9), turns)
    summary = evaluated.summary
    assert (summary["accuracy"], summary["mean_turns"], summary["mean_tokens"]) == (1.0, 4.0, 4.0)
    assert summary["pass_at_k"] == {"1": 0.5, "2": 1.0}
    assert [t.sample for t in evaluated.trajectories] == [0, 1, 2]
    assert [info_of(t)["turns"] for t in evaluated.trajectories] == [4, 6, 4]
    greedy = [a for a in book.requests if "greedy" in a[0]]
    assert {a[3] for a in greedy} == {Sampling(max_tokens=9, temperature=0.0)}
    assert {a[0] for a in book.requests} == {
        ("evaluation", "five", "greedy", "attempt", 0),
        ("evaluation", "five", "attempt", 0),
        ("evaluation", "five", "attempt", 1),
    }


def test_calls_and_regret_are_means_over_the_episodes_that_measure_them() -> None:
    def answered(turns: int, measures: Mapping[str, float] | None) -> list[Trajectory]:
        episode = Episode(valid_turns=(True,) * turns, measures=measures)
        return [replace(made(reward=1.0), facts=(episode,))]

    both = {"calls": 2.0, "regret": 0.25}
    found = summarize([answered(3, both), answered(1, {"calls": 1.0, "regret": -0.75}), answered(2, None)], 1.0)
    assert (found["mean_turns"], found["mean_calls"], found["mean_regret"]) == (2.0, 1.5, -0.25)
    found = summarize([answered(3, {"calls": 0.0})], 1.0)
    assert found["mean_calls"] == 0.0 and "mean_regret" not in found
    assert not {"mean_turns", "mean_calls"} & set(summarize([[made(reward=1.0)]], 1.0))


def test_a_rollout_of_one_turn_changes_nothing() -> None:
    evaluated, book = measure(GREEDY, ["cat"] * 5)
    again = Book(GREEDY)
    tasks = tasks_of(GREEDY, ["cat"] * 5)
    other = evaluate(again, tasks, Marker(), Evaluation(), Sampling(max_tokens=9), Independent(n=3))
    assert again.requests == book.requests
    assert other.summary == evaluated.summary


def test_helpers_answer_beside_the_policy() -> None:
    """RLAD: the writer's hint is in the prompt of the policy, greedy for the greedy answer."""
    task = Task(key="sum", prompt="2+2", answer="4")
    policy = Book({"2+2\nHint: add\nAnswer:": ("4", ["4"]), "2+2\nHint: guess\nAnswer:": ("5", ["5"])})
    writer = Book({"2+2\nHint:": (" add", [" guess"])})
    settings = Evaluation(samples=1)
    found = evaluate(policy, [task], Marker(), settings, Sampling(), Abstracted(), {"writer": writer})  # type: ignore[arg-type, dict-item]
    assert [t.completion for t in found.trajectories] == ["4", "5"]
    assert [request[3].temperature for request in writer.requests] == [0.0, 1.0]


def test_a_rollout_whose_environment_failed_is_an_error_and_not_wrong() -> None:
    tasks = [
        Task(key="odd", prompt="Odd.", fields={"cells": "five"}),
        Task(key="ok", prompt="Ok.", fields={"cells": 2}),
    ]
    turns = Turns(environment=Corridor(horizon=1), n=1)
    summary = evaluate(Walkers({}), tasks, Verdict(), Evaluation(), Sampling(max_tokens=9), turns).summary
    assert (summary["errors"], summary["accuracy"]) == (1, 1.0)


def test_a_lower_threshold_counts_more_answers_as_correct() -> None:
    evaluated, _ = measure(GREEDY, ["cat", "cat", "cat", "cat", "emu"], correct_at=0.5)
    assert evaluated.summary["correct"] == 2
    assert evaluated.summary["accuracy"] == 2 / 4


def test_pass_at_k_by_hand() -> None:
    answers: Answers = {
        "a": ("cat", ["cat", "cow", "dog", "cat"]),  # 2 of 4 correct
        "b": ("dog", ["dog", "dog", "dog", "dog"]),  # 0 of 4
        "c": ("dog", ["cat", "cat", "cat", "cat"]),  # 4 of 4
        "d": ("cat", ["?", "?", "cat", "dog"]),  # 1 of 2 that could be scored
    }
    evaluated, _ = measure(answers, ["cat"] * 4, samples=4)
    summary = evaluated.summary
    assert summary["accuracy"] == 2 / 4, "greedy answers only"
    assert summary["pass_at_k"] == {
        "1": pytest.approx((2 / 4 + 0 + 1 + 1 / 2) / 4),
        # 1 - C(wrong, 2) / C(n, 2): of a 1 - 1/6, of d 1 - 0/1
        "2": pytest.approx((5 / 6 + 0 + 1 + 1) / 4),
        # four that could be scored are needed: not d
        "4": pytest.approx((1 + 0 + 1) / 3),
    }


def test_every_answer_is_kept_greedy_first() -> None:
    answers: Answers = {"a": ("cat", ["cow", "dog"]), "b": ("emu", ["fox", "?"])}
    evaluated, _ = measure(answers, ["cat", "emu"], samples=2)
    kept = [(t.task.key, t.sample, t.completion, t.score and t.score.status) for t in evaluated.trajectories]
    assert kept == [
        ("key of a", 0, "cat", "ok"),
        ("key of a", 1, "cow", "wrong"),
        ("key of a", 2, "dog", "wrong"),
        ("key of b", 0, "emu", "ok"),
        ("key of b", 1, "fox", "wrong"),
        ("key of b", 2, "?", "error"),
    ]
    for trajectory in evaluated.trajectories:
        prompt, written = trajectory.segments
        assert (prompt.actor, prompt.trained, written.actor, written.trained) == ("prompt", False, "policy", True)
        assert prompt.text == trajectory.task.prompt
        assert written.version == 2


def test_draws_are_a_function_of_the_task_alone() -> None:
    answers: Answers = {"a": ("cat", ["cow", "dog"]), "b": ("emu", ["fox", "gnu"])}
    _, book = measure(answers, ["cat", "emu"], samples=2)
    _, reordered = measure(dict(reversed(answers.items())), ["emu", "cat"], samples=2)
    greedy, sampled = Sampling(max_tokens=9, temperature=0.0), Sampling(max_tokens=9)
    expected = [
        (("evaluation", "key of a", "greedy"), "a", 1, greedy),
        (("evaluation", "key of a"), "a", 2, sampled),
        (("evaluation", "key of b", "greedy"), "b", 1, greedy),
        (("evaluation", "key of b"), "b", 2, sampled),
    ]
    assert sorted(book.requests, key=str) == sorted(reordered.requests, key=str) == sorted(expected, key=str)


def test_without_scores_there_is_no_accuracy() -> None:
    evaluated, _ = measure({"a": ("?", ()), "b": ("?", ())}, ["cat", "cat"])
    assert evaluated.summary["accuracy"] is None
    assert evaluated.summary["accuracy_interval"] is None
    assert evaluated.summary["mean_score"] is None
    assert evaluated.summary["errors"] == evaluated.summary["tasks"] == 2


def test_the_verifier_sees_all_answers_to_a_task_at_once() -> None:
    seen: list[tuple[str, list[str]]] = []

    class Watching(Marker):
        async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
            await asyncio.sleep(0)
            seen.append((group.key, [t.completion for t in group]))
            return await super().score(group, context)

    answers: Answers = {"a": ("cat", ["cow", "dog"]), "b": ("emu", ["fox", "gnu"])}
    evaluate(Book(answers), tasks_of(answers, ["cat", "emu"]), Watching(), Evaluation(samples=2), Sampling())
    assert sorted(seen) == [("key of a", ["cat", "cow", "dog"]), ("key of b", ["emu", "fox", "gnu"])]


def test_summaries_do_not_depend_on_the_order_of_tasks() -> None:
    evaluated, _ = measure(GREEDY, ["cat", "cat", "cat", "cat", "emu"])
    answered = [[trajectory] for trajectory in evaluated.trajectories]
    assert summarize(answered[::-1], 1.0) == summarize(answered, 1.0) == evaluated.summary


# With a real sampler


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    folder = new_folder(tmp_path_factory.mktemp("m") / "tiny", layers=1, width=32, heads=2, kv_heads=1, context=64)
    policy = load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu"))
    return lambda slots=64: Native(slots=slots).serve(policy, 0)


def test_two_evaluations_of_one_model_are_the_same_and_share_their_luck(server: Callable[..., Any]) -> None:
    tasks = [Task(key=str(i), prompt=f"{i}+{i}=", answer=str(2 * i)) for i in range(12)]
    settings, sampling = Evaluation(samples=3), Sampling(max_tokens=6)

    def texts(slots: int, chosen: Sequence[Task]) -> dict[tuple[str, int], str]:
        found = evaluate(server(slots), chosen, Marker(), settings, sampling)
        return {(t.task.key, t.sample): t.completion for t in found.trajectories}

    whole = texts(64, tasks)
    assert len(set(whole.values())) > 20
    assert texts(5, tasks[::-1]) == whole, "neither order nor batch matters"
    part = texts(64, tasks[4:7])
    assert part == {place: text for place, text in whole.items() if place[0] in "456"}, "nor other requests"


def test_more_samples_begin_with_the_same_ones(server: Callable[..., Any]) -> None:
    task = Task(key="k", prompt="1+1=", answer="2")
    few, many = (
        evaluate(server(), [task], Marker(), Evaluation(samples=n), Sampling(max_tokens=6)).trajectories for n in (2, 5)
    )
    assert [t.completion for t in many][:3] == [t.completion for t in few]
