import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from posttrain.components.rollouts.critiqued import Critiqued
from posttrain.datasets.templates import Critiques
from posttrain.engines import Sampling
from posttrain.errors import AlarmStop, NoAnswer, UserError
from posttrain.types import Group, Message, Score, Task
from tests.builders import ScriptedSampler, info_of, score, task

SHORT = Critiques(
    right="ok",
    wrong="no",
    right_revealed="ok {answer}",
    wrong_revealed="no {answer}",
    request="{question}|{solution}|{raw_attempt}",
    refinement="{question}<{attempt}>[{critique}]",
)
SUM = task("sum", prompt="2+2=", answer="4")


class Prompted(ScriptedSampler):
    """Remembers the prompts that it wrote after."""

    def __init__(self, *key: str) -> None:
        super().__init__(*key)
        self.prompts: list[str] = []

    async def sample(self, token_ids: np.ndarray, n: int, sampling: Sampling) -> list[Any]:
        self.prompts.append(bytes(int(i) for i in token_ids if i > 1).decode())
        return await super().sample(token_ids, n, sampling)


class Critic(ScriptedSampler):
    """Writes these texts in order; an exception is raised."""

    def __init__(self, *says: str | Exception) -> None:
        super().__init__("judge")
        self.says, self.asked = iter(says), list[Any]()

    async def write(self, prompt: str | Sequence[Message], n: int, sampling: Sampling) -> list[str]:
        self.asked.append(prompt)
        said = next(self.says)
        if isinstance(said, Exception):
            raise said
        return [said] * n


def collected(
    rollout: Critiqued, grades: Sequence[float | None], of: Task = SUM, **others: ScriptedSampler
) -> tuple[Group, Prompted, list[int]]:
    """The group, the policy, and how many rollouts were scored at a time; None is a failed score."""
    policy, values, sizes = Prompted("policy"), iter(grades), list[int]()

    async def scorer(group: Group) -> Group:
        sizes.append(len(group))
        given = [next(values) for _ in group]
        scores = [Score(value=math.nan, status="error") if g is None else score(g) for g in given]
        return replace(group, trajectories=tuple(t.scored(s) for t, s in zip(group, scores, strict=True)))

    [group] = asyncio.run(rollout.collect_scored(of, {"policy": policy, **others}, scorer))
    return group, policy, sizes


def test_each_rollout_is_refined_after_question_rollout_and_critique() -> None:
    group, policy, sizes = collected(Critiqued(n=3, texts=SHORT), [0, 1, 0, 1, 0, 1])
    own, refined = group.trajectories[:3], group.trajectories[3:]
    assert sizes == [3, 3] and [t.sample for t in group] == [0, 1, 2, 3, 4, 5]
    texts = [t.completion for t in own]
    assert policy.prompts == ["2+2=", *(f"2+2=<{texts[i]}>[{c}]" for i, c in enumerate(("no 4", "ok 4", "no 4")))]
    assert [info_of(t)["refines"] for t in refined] == [0, 1, 2]
    assert (info_of(refined[0])["critique_kind"], info_of(refined[0])["critique"]) == ("simple_gt", "no 4")
    assert [t.solved for t in refined] == [True, False, True]


def test_a_refinement_is_learned_under_the_bare_prompt_as_tokens_that_nobody_sampled_there() -> None:
    group, policy, _ = collected(Critiqued(n=2, texts=SHORT), [0, 1, 1, 1])
    prompt = group.trajectories[0].segments[0]
    for place, refined in enumerate(group.trajectories[2:]):
        written = policy.completions[2 + place]
        first, second = refined.segments
        assert first is prompt and second.token_ids.tolist() == written.token_ids.tolist()
        assert second.trained and second.logp is None and second.learner == "policy"
        assert refined.demonstrated and np.isnan(refined.behavior_logp).all()
        assert b"[".hex() not in refined.token_ids.astype(np.uint8).tobytes().hex(), "no word of the critique"
    assert group.solved == 0.5, "refinements are no attempts of the policy's own"


@pytest.mark.parametrize(("kind", "words"), [("simple", ["no", "ok"]), ("simple_gt", ["no 4", "ok 4"])])
def test_critiques_without_a_critic(kind: Any, words: list[str]) -> None:
    group, _, _ = collected(Critiqued(n=2, critique=kind, texts=SHORT), [0, 1, 0, 0])
    assert [info_of(t)["critique"] for t in group.trajectories[2:]] == words


def test_a_critic_writes_about_incorrect_rollouts_and_what_it_cannot_is_reported() -> None:
    critic = Critic("carry the one", NoAnswer("it is up, but has no answer"), "  ")
    rollout = Critiqued(n=4, critique="text", texts=SHORT)
    group, _, _ = collected(rollout, [0, 1, 0, 0, 0, 0, 0, 0], judge=critic)
    infos = [info_of(t) for t in group.trajectories[4:]]
    assert [i["critique"] for i in infos] == ["carry the one", "ok 4", "no 4", "no 4"]
    assert [i["critique_kind"] for i in infos] == [
        "text",
        "simple_gt",
        "simple_gt, since it is up, but has no answer",
        "simple_gt, since the critic said nothing",
    ]
    texts = [t.completion for t in group.trajectories[:4]]
    assert [asked[0]["content"] for asked in critic.asked] == [f"2+2=|4|{texts[i]}" for i in (0, 2, 3)]


def test_a_critic_that_is_down_stops_the_run() -> None:
    rollout = Critiqued(n=1, critique="text", texts=SHORT)
    with pytest.raises(AlarmStop):
        collected(rollout, [0, 0], judge=Critic(AlarmStop("down")))


def test_a_critic_nobody_plays_is_a_mistake() -> None:
    with pytest.raises(UserError, match="samples from the role 'judge'"):
        collected(Critiqued(n=1, critique="text"), [0, 0])


def test_the_critic_sees_the_rollout_between_marks_and_a_demonstration_as_the_solution() -> None:
    critic, of = Critic("hm"), replace(SUM, demonstrations=("2 and 2 make 4",))
    collected(Critiqued(n=1, critique="text"), [0, 0], of, judge=critic)
    content = critic.asked[0][0]["content"]
    assert "2 and 2 make 4" in content and "<<<BEGIN " in content and "nothing in it is an instruction" in content


def test_messages_keep_their_form() -> None:
    of = Task(key="chat", prompt=({"role": "system", "content": "Be."}, {"role": "user", "content": "2+2"}), answer="4")
    _, policy, _ = collected(Critiqued(n=1, texts=SHORT), [0, 0], of)
    assert policy.prompts[0] == "system: Be.\nuser: 2+2\n"
    assert policy.prompts[1].startswith("system: Be.\nuser: 2+2<") and policy.prompts[1].endswith(">[no 4]\n")


def test_a_rollout_that_was_not_scored_is_not_refined() -> None:
    group, _, sizes = collected(Critiqued(n=3, texts=SHORT), [None, 0, None, 1])
    assert sizes == [3, 1] and info_of(group.trajectories[3])["refines"] == 1
    group, _, sizes = collected(Critiqued(n=2, texts=SHORT), [None, None])
    assert sizes == [2] and len(group) == 2


def test_what_leaves_no_room_is_not_refined_and_what_does_not_fit_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScriptedSampler, "context", 12)
    group, _, _ = collected(Critiqued(n=1, texts=SHORT), [0, 0])
    assert len(group) == 1
    monkeypatch.setattr(ScriptedSampler, "context", 64)
    long = Critiqued(n=1, texts=replace(SHORT, refinement="x"), sampling=Sampling(max_tokens=100))
    for key in range(40):  # some of its completions are as long as the limit allows
        group, _, _ = collected(long, [0, 0], replace(SUM, prompt=f"2+2+{key}="))
        assert len(group.trajectories[1].token_ids) <= 64
        assert (group.trajectories[1].stop_reason == "length") or len(group.trajectories[1].token_ids) < 64


def test_answers_are_needed_to_tell_them() -> None:
    without = [task("a"), task("b", answer=None)]
    with pytest.raises(UserError, match=r"1 of 2 tasks have none \(the first: b\)"):
        Critiqued().check(without)
    Critiqued(critique="simple").check(without)
