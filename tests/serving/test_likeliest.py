"""Log-probabilities of labels from endpoints: what is requested, read and refused."""

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import httpx2
import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.preference_model import PreferenceModel
from posttrain.components.rewards.principle_logit import PrincipleLogit
from posttrain.errors import NoAnswer, UserError
from posttrain.models import Endpoint, Model
from posttrain.runs.answers import AnswerBook
from posttrain.serving.client import Remote
from posttrain.serving.likeliest import likeliest_of, of_labels, read, written
from posttrain.serving.sampler import RemoteSampler
from posttrain.serving.server import Service
from posttrain.signals import SCORE, logp_of
from posttrain.stages.needs import Need, check_needs, needs_of
from posttrain.types import Message, Score
from tests.components.rewards.judging import attempt, score_all
from tests.engines.scripted import bigrams, serve
from tests.serving.test_server import ChatPolicy

PROMPT = (Message(role="user", content="Yes or No?"),)
SETTINGS = Endpoint(model="tester", retries=0, top_logprobs=5)


def chat(*pairs: tuple[str, float]) -> dict[str, Any]:
    top = [{"token": token, "logprob": logp} for token, logp in pairs]
    return {"message": {"content": pairs[0][0]}, "logprobs": {"content": [{**top[0], "top_logprobs": top}]}}


def remote(*choices: Any, asked: list[Any] | None = None, settings: Endpoint = SETTINGS) -> Remote:
    """An endpoint that gives these choices, or responses, one after another, and the last one for ever."""
    left = list(choices)

    def reply(request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            return httpx2.Response(200, json={"data": [{"id": "tester"}]})
        if asked is not None:
            asked.append((request.url.path, json.loads(request.content)))
        choice = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(choice, httpx2.Response):
            return choice
        return httpx2.Response(200, json={"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 1}})

    return Remote("judge", "http://test/v1", settings, transport=httpx2.MockTransport(reply))


def labels(endpoint: Remote, *names: str, prompt: Any = PROMPT) -> list[float]:
    return asyncio.run(RemoteSampler(endpoint, "key").label_logp(prompt, names))


def test_spellings_of_a_label_are_added_and_a_missing_one_is_bounded() -> None:
    found = [("Yes", math.log(0.5)), (" Yes", math.log(0.2)), ("no", math.log(0.1))]
    assert of_labels(found, ("Yes", " no")) == pytest.approx([math.log(0.7), math.log(0.1)])
    assert of_labels(found, ("Yes", "No")) == pytest.approx([math.log(0.7), math.log(0.1)]), "the least stated one"
    certain = [("Yes", math.log(0.6)), ("Maybe", math.log(0.39))]
    assert of_labels(certain, ("Yes", "No")) == pytest.approx([math.log(0.6), math.log(0.01)]), "what is left"
    assert of_labels(found, ("A", "B")) is None and of_labels([], ("A", "B")) is None


def test_what_is_requested_of_chats_and_of_text() -> None:
    asked: list[Any] = []
    text = {"text": "A", "logprobs": {"top_logprobs": [{"A": -0.1, "B": -3.0}]}}
    endpoint = remote(chat(("Yes", -0.5), ("No", -1.5)), text, asked=asked)
    assert labels(endpoint, "Yes", "No") == pytest.approx([-0.5, -1.5])
    assert labels(endpoint, "B", "A", prompt="Q: ") == pytest.approx([-3.0, -0.1])
    plain = {"model": "tester", "max_tokens": 1, "temperature": 1.0, "top_p": 1.0, "seed": 0, "n": 1}
    assert asked == [
        ("/v1/chat/completions", {**plain, "messages": [*PROMPT], "logprobs": True, "top_logprobs": 5}),
        ("/v1/completions", {**plain, "prompt": "Q: ", "logprobs": 5}),
    ]
    assert (endpoint.spending.prompt, endpoint.spending.completion) == (14, 2)


@pytest.mark.parametrize(
    "choice", [{"message": {"content": "Yes"}}, {"text": "Yes", "logprobs": None}, {"logprobs": {"top_logprobs": None}}]
)
def test_an_endpoint_that_states_none_is_refused(choice: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"answers without log-probabilities .* take the reward 'judge', which reads"):
        labels(remote(choice), "Yes", "No")


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (chat(("The", -0.1), ("A", -3.0)), "none of 'Yes', 'No' is among the 2 likeliest .*'The', 'A'"),
        ({"message": {"content": ""}, "logprobs": {"content": []}}, "none of 'Yes', 'No' is among the 0 likeliest"),
        (httpx2.Response(400, text="top_logprobs is at most 3"), "refuses this request: .*at most 3"),
        (chat(("Yes", math.log(2))), "not an answer of the protocol"),
        ({"logprobs": {"content": [{"token": "Yes"}]}}, "not an answer of the protocol"),
        ({"logprobs": {"content": [{"top_logprobs": [{"token": "Yes", "logprob": "-"}]}]}}, "not an answer"),
        ({"logprobs": 3}, "not an answer of the protocol"),
    ],
)
def test_other_answers_are_errors_of_one_request(choice: Any, message: str) -> None:
    with pytest.raises(NoAnswer, match=message):
        labels(remote(choice), "Yes", "No")


def test_answers_are_recorded_and_requested_once(tmp_path: Path) -> None:
    asked: list[Any] = []
    for _ in range(2):
        endpoint = remote(chat(("Yes", -0.25), ("No", -2.0)), asked=asked)
        endpoint.answers = AnswerBook(tmp_path)
        assert labels(endpoint, "Yes", "No") == [-0.25, -2.0]
    assert len(asked) == 1
    assert read(written([("a", -1.5)])) == [("a", -1.5)] and read(written(None)) is None
    assert likeliest_of({}) is None


def scored(reward: Any, sampler: Any, *texts: str) -> list[Score]:
    return score_all(reward, *map(attempt, texts), context=RewardContext(samplers={"judge": sampler}))


@pytest.mark.parametrize("in_chat", [False, True])
def test_a_served_judge_scores_by_its_distribution(in_chat: bool) -> None:
    """The two likeliest printable letters after the prompt "a:x" are among the tokens that a server states."""
    policy = ChatPolicy(bigrams())
    logits_V = policy.body.script(tuple(b"a:x"))
    order = [i for i in logits_V.argsort(descending=True).tolist()[:20] if 33 <= i < 127]
    reward = PrincipleLogit(
        template="{raw_response}:{principle}", principle="x", chat=in_chat, words=(chr(order[0]), chr(order[1]))
    )
    transport = httpx2.ASGITransport(app=Service(serve(policy), "tester").app())
    endpoint = Remote("judge", "http://test/v1", Endpoint(model="tester", retries=0), transport=transport)
    [score] = scored(reward, RemoteSampler(endpoint, "key"), "a")
    assert score.status == "ok" and score.value == pytest.approx(
        float(logits_V[order[0]] - logits_V[order[1]]), abs=1e-4
    )


def test_rewards_without_an_answer_are_errors() -> None:
    silent = RemoteSampler(remote(chat(("The", -0.1))), "key")
    [one] = scored(PrincipleLogit(), silent, "text")
    assert one.status == "error" and "likeliest first tokens" in one.explanation
    pair = scored(PreferenceModel(), silent, "1", "2")
    assert [s.status for s in pair] == ["error"] * 2 and "names no letter" in pair[0].explanation
    sure = RemoteSampler(remote(chat(("A", math.log(0.8)), ("B", math.log(0.2)))), "key")
    assert [s.value for s in scored(PreferenceModel(), sure, "1", "2")] == pytest.approx([0.5, 0.5])


def test_a_stage_takes_an_endpoint_for_labels_only() -> None:
    models = {"judge": Model(source="http://test/v1")}
    check_needs("stages.rl", needs_of("reward", PrincipleLogit(), role="policy"), models, {})
    for signal in (logp_of("judge"), SCORE):
        with pytest.raises(UserError, match="is an endpoint, which returns text only"):
            check_needs("stages.rl", [Need(signal=signal, role="judge", path="reward")], models, {})
