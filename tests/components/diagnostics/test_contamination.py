"""Self-Critique: entropies, the score of two answers, what is asked, and the areas at the end."""

import asyncio
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from posttrain.cli import main
from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics._likelihoods import token_logps, top_entropies, top_entropy
from posttrain.components.diagnostics.contamination import (
    ROWS,
    Contamination,
    _filled,
    mean_logp,
    min_k,
    separation,
    similarity,
)
from posttrain.components.tasks import Tasks
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies import Policy
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.signals import ENTROPY, LOGP
from posttrain.types import Message, Task
from tests.builders import ScriptedSampler

AGAIN, CONTROL = "{prompt}{answer};{prompt}", "{prompt}!"
SOME = Arithmetic(size=4)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = new_folder(tmp_path_factory.mktemp("m") / "m", layers=1, width=32, heads=2, kv_heads=1, context=128)
    return load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu"))


def subject(policy: Policy) -> Subject:
    return Subject(name="m", load=lambda: policy, serve=lambda own: Native().serve(own, 0))


def test_entropy_by_hand() -> None:
    """Of 1/2, 1/4, 1/4: 1.5 ln 2 in all, ln 2 from the first two, and ln 3 - 2/3 ln 2 of 2/3 and 1/3."""
    logits = torch.tensor([[0.5, 0.25, 0.25]]).log()

    def entropy(k: int, renormalise: bool = False) -> float:
        return float(top_entropy(logits, k, renormalise=renormalise))

    assert entropy(0) == entropy(3) == entropy(50) == pytest.approx(1.5 * math.log(2))
    assert entropy(2) == pytest.approx(math.log(2))
    assert entropy(2, renormalise=True) == pytest.approx(math.log(3) - 2 / 3 * math.log(2))
    assert entropy(1, renormalise=True) == 0.0
    sure = torch.tensor([[0.0, -math.inf, -math.inf]])
    assert float(top_entropy(sure, 0, renormalise=False)) == 0.0


@pytest.mark.parametrize(
    ("first", "second", "score"),
    [
        ([1.0, 2.0], [2.0, 1.0, 2.0], 4 / (math.sqrt(5) * 3) * 2 / 3),
        ([2.0, 1.0, 2.0], [1.0, 2.0], 4 / (math.sqrt(5) * 3) * 2 / 3),
        ([1.0, 1.0], [1.0, 1.0, 1.0, 1.0], math.sqrt(0.5) / 2),  # the same, half as long: under a half
        ([1.0, 3.0], [10.0, 30.0], 1.0),  # the size of the entropies does not show
        ([0.0, 0.0], [1.0, 1.0], 0.0),
        ([0.0], [0.0], 0.0),  # wholly sure twice is 0, not 1
        ([1.0, 0.0], [0.0, 1.0], 0.0),
    ],
)
def test_score_by_hand(first: list[float], second: list[float], score: float) -> None:
    assert similarity(np.array(first, np.float32), np.array(second, np.float32)) == pytest.approx(score)


def test_no_answer_has_no_score() -> None:
    assert math.isnan(similarity(np.zeros(0, np.float32), np.ones(2, np.float32)))


def test_likelihoods_by_hand() -> None:
    logp = np.array([-1.0, -5.0, -3.0, -2.0, -4.0, -0.0, -0.0, -0.0, -0.0, -0.0], np.float32)
    assert mean_logp(logp) == -1.5
    assert min_k(logp) == -4.5  # two of ten
    assert min_k(logp[:3]) == -5.0  # at least one
    assert math.isnan(min_k(logp[:0])) and math.isnan(mean_logp(logp[:0]))


def test_what_could_not_be_scored_is_left_out_and_counted() -> None:
    found = separation([3.0, 1.0, math.nan], [2.0, 0.0])
    assert (found["auc"], found["left_out"]) == (0.75, [1, 0])
    assert found["means"] == [2.0, 1.0] and found["shuffled"]["mean"] == pytest.approx(0.5, abs=0.05)
    assert separation([math.nan], [1.0]) == {"left_out": [1, 0], "auc": None}


def test_entropies_and_likelihoods_are_the_models_own(policy: Policy) -> None:
    """Beside one another or alone; with all tokens, the entropy that `evaluate` gives."""
    rng = np.random.default_rng(0)
    written = [(rng.integers(0, 256, length).astype(np.int64), before) for length, before in ((9, 4), (5, 1), (3, 3))]
    every = top_entropies(policy, written, 0, renormalise=False)
    assert [len(h) for h in every] == [5, 4, 0]
    from posttrain.policies import Packed

    ids = torch.as_tensor(written[0][0])
    alone = policy.evaluate(Packed(token_ids_L=ids, starts=(0, 9)), torch.arange(4, 9), frozenset({ENTROPY}))
    assert every[0].tolist() == pytest.approx(alone[ENTROPY].tolist(), abs=1e-5)
    assert token_logps(policy, written)[0].tolist() == pytest.approx(alone[LOGP].tolist(), abs=1e-5)
    few = top_entropies(policy, written, 5, renormalise=False)
    assert (few[0] < every[0]).all()


def test_what_is_asked_the_second_time() -> None:
    assert _filled("{prompt} not {answer}: {prompt}", "1+1={answer}", "3") == "1+1={answer} not 3: 1+1={answer}"
    chat = (Message(role="system", content="s"), Message(role="user", content="q"))
    assert _filled("{prompt}? {answer}", chat, "a") == (
        Message(role="system", content="s"),
        Message(role="user", content="q? a"),
    )
    with pytest.raises(ValidationError, match=r"again needs {prompt} and {answer}"):
        Contamination(members=SOME, others=SOME, again="{answer}")
    with pytest.raises(ValidationError, match=r"control needs {prompt} only; got control: {prompt} {answer}"):
        Contamination(members=SOME, others=SOME, control="{prompt} {answer}")


class Recording(ScriptedSampler):
    """Answers with what it was asked, and remembers it."""

    def __init__(self, context: int) -> None:
        super().__init__("key")
        self.context, self.prompts = context, []  # type: ignore[var-annotated]

    async def sample(self, token_ids: np.ndarray, n: int, sampling: Any) -> Any:
        self.prompts.append((len(token_ids), sampling.max_tokens, sampling.temperature))
        [made] = await super().sample(token_ids, 1, sampling)
        return [replace(made, token_ids=np.full(40, 97), text="a" * 40)]


class Serving:
    def __init__(self, sampler: Recording) -> None:
        self.sampler, self.counters = sampler, None

    def bind(self, *key: int | str) -> Recording:
        return self.sampler


@pytest.mark.parametrize(("context", "shown"), [(4096, 40), (84, 30), (54, 0)])
def test_the_first_answer_is_cut_to_leave_room(context: int, shown: int) -> None:
    """A start token, two of the prompt, one more of the request; 50 of the context are kept; the answer has 40."""
    sampler = Recording(context)
    settings = Contamination(members=SOME, others=SOME, again="{prompt}{answer};", control=CONTROL, max_tokens=64)
    task = Task(key="k", prompt="12")
    first, second, control = asyncio.run(settings._answer_thrice(Serving(sampler), task))  # type: ignore[arg-type]
    again = [(4 + shown, 128, 0.0)] if shown else []
    assert sampler.prompts == [(3, 64, 0.0), *again, (4, 128, 0.0)]
    assert [len(answer.token_ids) for answer in (first, second, control)] == [40, 40 if shown else 0, 40]


def test_prompts_without_room_are_left_out(policy: Policy) -> None:
    """The model has a context of 128: the long request leaves none for the second answer."""
    again, others = "{prompt}" * 4 + "x" * 70 + "{answer}", Arithmetic(size=4, seed=1)
    settings = Contamination(members=SOME, others=others, max_tokens=8, again=again, control=CONTROL)
    found = settings.examine(subject(policy))
    assert found.values["scores"]["self_critique"] == {"left_out": [4, 4], "auc": None}
    assert found.values["scores"]["without_answer"]["left_out"] == [0, 0]
    assert all(item["self_critique"] is None for item in found.values["items"])
    assert "self_critique   not defined; 8 tasks left out" in found.lines
    json.dumps(found.values, allow_nan=False)


def test_examined_twice_it_is_the_same(policy: Policy) -> None:
    settings = Contamination(
        members=SOME, others=Arithmetic(size=5, seed=1), max_tokens=8, again=AGAIN, control=CONTROL
    )
    found = settings.examine(subject(policy))
    assert found == settings.examine(subject(policy))
    assert (found.values["members"], found.values["others"], len(found.values["items"])) == (4, 5, 9)
    assert [item["member"] for item in found.values["items"]] == [True] * 4 + [False] * 5
    assert all(0 <= item["self_critique"] <= 1 + 1e-9 for item in found.values["items"])
    fewer = replace(settings, top_k=2).examine(subject(policy)).values["items"]
    again = replace(settings, top_k=2, renormalise=True).examine(subject(policy)).values["items"]
    assert fewer != again and fewer[0]["likelihood"] == found.values["items"][0]["likelihood"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: (SOME, SOME), "4 tasks are among the members and among the others, the first is"),
        (lambda: (SOME, Nothing()), "there are 4 members and 0 others"),
        (lambda: (SOME, Bare()), "task bare has no demonstration to compute the likelihood of"),
    ],
)
def test_mistakes(policy: Policy, make: Callable[[], tuple[Tasks, Tasks]], message: str) -> None:
    members, others = make()
    with pytest.raises(UserError, match=message):
        Contamination(members=members, others=others, text="demonstration").examine(subject(policy))


class Nothing(Tasks):
    def load(self) -> list[Task]:
        return []


class Bare(Tasks):
    def load(self) -> list[Task]:
        return [Task(key="bare", prompt="1+1=")]


def test_demonstrations_are_inspected_after_their_prompt(policy: Policy) -> None:
    settings = Contamination(members=SOME, others=Arithmetic(size=4, seed=1), text="demonstration")
    task = SOME.load()[0]
    ids, before = settings._text(policy, task)
    assert bytes(ids[:before].tolist()).decode() == task.prompt
    assert len(ids) > before
    assert replace(settings, text="prompt")._text(policy, task)[1] == 1


@pytest.mark.slow
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for name, first in (("a", 10), ("b", 50)):
        rows = [json.dumps({"prompt": f"{n}+7=", "answer": str(n + 7)}) for n in range(first, first + 6)]
        Path(f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    words = ["members=a.jsonl", "others=b.jsonl", "max_tokens=24", f"again={AGAIN}", f"control={CONTROL}"]
    assert main(["diagnose", "contamination", "pebble", *words, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["kind"], found["model"], found["members"]) == ("contamination", "pebble", 6)
    assert set(found["scores"]) == {"self_critique", "without_answer", "likelihood", "min_k"}
    assert ROWS == (104,)
