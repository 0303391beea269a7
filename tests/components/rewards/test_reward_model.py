import asyncio
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.reward_model import RewardModel
from posttrain.components.rewards.sum import Sum
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.policies.loading import load_policy
from posttrain.stages.pairs import pair_trajectories
from posttrain.types import Preference, Segment, Task, Trajectory
from tests.builders import ScriptedSampler
from tests.components.rewards.judging import CHAT, attempt, score_all


class SumOfIds(ScriptedSampler):
    """Finds large token ids good; a sequence with a zero after its first token breaks it."""

    async def score(self, token_ids: np.ndarray, *, vectors: np.ndarray | None = None) -> float:
        return math.nan if 0 in token_ids[1:] else float(token_ids.sum())


CONTEXT = RewardContext(samplers={"reward": SumOfIds("reward"), "other": ScriptedSampler("other")})


def written(*token_ids: int, text: str = "abc") -> Trajectory:
    prompt = attempt(text).segments[0]
    return replace(attempt(text), segments=(prompt, Segment(actor="policy", token_ids=np.array(token_ids), text=text)))


def test_the_whole_sequence_is_scored() -> None:
    low, high = score_all(RewardModel(), written(1), written(2, 3), context=CONTEXT)
    assert (low.value, high.value) == (1 + 1, 1 + 5)
    assert low.explanation == "the role 'reward' gives 2"


def test_a_model_reads_the_text_in_its_own_tokens() -> None:
    class Adding(SumOfIds):
        async def score(self, token_ids: np.ndarray, *, vectors: np.ndarray | None = None) -> float:
            return float(token_ids.sum())

    rollout, own = written(900, 901, text="ab"), Adding("reward")
    (score,) = score_all(RewardModel(own_tokens=True), rollout, context=RewardContext(samplers={"reward": own}))
    prompt = rollout.task.prompt
    assert score.value == own.encode(prompt).sum() + own.encode_completion(prompt, "ab").sum()
    turns = replace(rollout, segments=(*rollout.segments, rollout.segments[1]))
    (score,) = score_all(RewardModel(own_tokens=True), turns, context=RewardContext(samplers={"reward": own}))
    assert score.value == own.encode(prompt).sum() + own.encode_completion(prompt, "abab").sum()
    chat = replace(turns, task=CHAT)
    with pytest.raises(UserError, match=r"this one has images, or several turns of a chat.*leave own_tokens out"):
        score_all(RewardModel(own_tokens=True), chat, context=CONTEXT)


def test_a_rollout_beyond_the_context_is_read_up_to_its_end_and_counted() -> None:
    class Short(SumOfIds):
        context = 4

    context = RewardContext(samplers={"reward": Short("reward")})
    whole, cut = score_all(RewardModel(), written(1, 2), written(1, 2, 7, 8), context=context)
    assert (whole.value, cut.value) == (1 + 3, 1 + 3)
    assert [score.parts["cut"].value for score in (whole, cut)] == [0.0, 1.0]


def test_a_head_is_read_at_a_named_token(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "tiny", layers=1, width=32, heads=2, kv_heads=1, context=64)
    plain, named = (
        load_policy("reward", Model(source=str(folder), head="reward", read_at=token), {}, torch.device("cpu"))
        for token in (None, "!")
    )
    assert isinstance(plain, LanguageModelPolicy) and isinstance(named, LanguageModelPolicy)
    with torch.no_grad():
        for policy in (plain, named):
            assert policy.value_head is not None
            policy.value_head.weight.copy_(torch.linspace(-1, 1, 32)[None])
    task = Task(key="k", prompt="6*7=", preferences=(Preference(chosen="42", rejected="41"),))
    token, end = named.tokenizer.vocabulary["!"], plain.tokenizer.end_token_ids
    read = [pair_trajectories(policy, task, task.preferences[0])[0].token_ids for policy in (plain, named)]
    assert read[1][-1] == token and read[0][-1] in end and (read[0][:-1] == read[1][:-1]).all(), "in training"
    rollout = attempt("42", task)
    reward = RewardModel(own_tokens=True)
    found = [
        score_all(reward, rollout, context=RewardContext(samplers={"reward": Native().serve(policy, 0).bind()}))[0]
        for policy in (plain, named)
    ]
    assert found[0].value != found[1].value
    expected = asyncio.run(Native().serve(plain, 0).bind().score(read[1]))
    assert found[1].value == pytest.approx(expected, abs=1e-5)
    with pytest.raises(UserError, match="'<stop here>' is no single token"):
        load_policy("reward", Model(source=str(folder), head="reward", read_at="<stop here>"), {}, torch.device("cpu"))
    with pytest.raises(ValidationError, match="read_at is where a reward head is read"):
        Model(source=str(folder), read_at="!")


def test_length_is_taken_off_by_character() -> None:
    (score,) = score_all(RewardModel(length_penalty=0.1), written(9, text="abcde"), context=CONTEXT)
    assert score.value == pytest.approx(10 - 0.5)
    assert score.explanation == "the role 'reward' gives 10; 0.5 taken off for 5 characters"


def test_what_counts_as_solved() -> None:
    scores = score_all(RewardModel(correct_at=3.0), written(1), written(2), context=CONTEXT)
    assert [score.status for score in scores] == ["wrong", "ok"]


def test_a_model_that_gives_no_number_has_failed() -> None:
    sound, failed = score_all(RewardModel(), written(1), written(0), context=CONTEXT)
    assert (sound.status, failed.status) == ("ok", "error")
    assert math.isnan(failed.value)
    assert failed.explanation == "the role 'reward' gives nan"


def test_a_role_that_nobody_plays_is_named() -> None:
    with pytest.raises(UserError, match=r"uses the role 'rewards', .* did you mean 'reward'\?"):
        score_all(RewardModel(role="rewards"), written(1), context=CONTEXT)


def test_the_roles_of_a_sum_are_those_of_its_parts() -> None:
    both = Sum(parts={"model": RewardModel(role="judge"), "right": Match(), "nice": RewardModel()})
    assert both.roles == {"judge", "reward"}
    assert Match().roles == frozenset()


def test_the_engine_gives_what_the_head_returns_for_the_last_token(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "tiny", layers=1, width=32, heads=2, kv_heads=1, context=64)
    policy = load_policy("reward", Model(source=str(folder), head="reward"), {}, torch.device("cpu"))
    assert isinstance(policy, LanguageModelPolicy) and policy.value_head is not None
    with torch.no_grad():
        policy.value_head.weight.copy_(torch.linspace(-1, 1, 32)[None])
    sampler = Native().serve(policy, 0).bind()
    sequences = [np.arange(1, 2 + n) for n in (0, 5, 20)]

    async def together() -> list[float]:
        return list(await asyncio.gather(*(sampler.score(ids) for ids in sequences)))

    alone = [asyncio.run(sampler.score(ids)) for ids in sequences]
    assert asyncio.run(together()) == pytest.approx(alone, abs=1e-5)
    assert len({round(value, 3) for value in alone}) == 3
    with pytest.raises(UserError, match="'reward' has a reward head: it gives score and scores and state, not logp"):
        asyncio.run(sampler.logp(sequences[1]))
