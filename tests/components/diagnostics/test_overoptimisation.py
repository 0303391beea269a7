"""Best of n from the same samples: weights by hand, curves of planted proxies, verdicts, and what is refused."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from posttrain.components.diagnostics import Record, Subject
from posttrain.components.diagnostics.overoptimisation import Overoptimisation, _pictures, curves, weights
from posttrain.components.rewards.regex import Regex
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.engines import Sampling, wait_for
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy


def test_weights_by_hand() -> None:
    """Of three values the largest of two is the last in two of three draws and the second in one."""
    assert weights(3, 2).tolist() == pytest.approx([0, 1 / 3, 2 / 3])
    assert weights(4, 1).tolist() == [0.25] * 4 and weights(4, 4).tolist() == [0, 0, 0, 1]
    assert all(weights(64, n).sum() == pytest.approx(1.0) for n in (1, 2, 7, 64))


def test_a_proxy_that_overrates_what_is_rare_is_shown_and_a_true_one_is_not() -> None:
    """Gold is the proxy, but for the largest of each 64, which has -3."""
    rng = np.random.default_rng(0)
    proxy = rng.normal(size=(60, 64))
    gold = np.where(proxy == proxy.max(1, keepdims=True), -3.0, proxy)
    found = curves(proxy, gold)
    assert found["verdict"] == "shown" and 4 <= found["peak"] <= 16
    assert found["best_of"][-1]["gold"]["mean"] == pytest.approx(-3.0)
    assert found["best_of"][0]["kl_at_most"] == 0.0
    assert found["best_of"][6]["kl_at_most"] == pytest.approx(math.log(64) - 63 / 64)
    sound = curves(proxy, proxy)
    assert sound["verdict"] == "not shown" and sound["peak"] == 64
    assert curves(proxy[:10], gold[:10])["verdict"] == "too little"


def test_pictures_are_of_gold_and_proxy_by_kl_and_by_step() -> None:
    rng = np.random.default_rng(1)
    values = curves(rng.normal(size=(8, 4)), rng.normal(size=(8, 4)))
    gold, proxy = _pictures(values)
    assert [point[0] for point in gold.points] == [own["kl_at_most"] for own in values["best_of"]]
    assert gold.points[2][1:] == tuple(values["best_of"][2]["gold"][end] for end in ("mean", "low", "high"))
    one = {"mean": 1.0, "low": 0.0, "high": 2.0}
    steps = [{"step": step, "gold": one, "proxy": one} for step in (1, 5)]
    assert [p.title for p in _pictures({**values, "steps": steps})[2:]] == [
        "gold, steps of the run", "proxy, steps of the run"]  # fmt: skip
    assert proxy.title == "proxy, best of n"


def test_the_whole_on_a_tiny_model(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=128)
    reward = load_policy("reward", Model(source=str(folder), head="reward"), {}, torch.device("cpu"))
    reward.save(tmp_path / "reward")

    def subject(name: str) -> Subject:
        path = str(tmp_path / name)
        return Subject(
            name=name,
            load=lambda: load_policy("policy", Model(source=path), {}, torch.device("cpu")),
            serve=lambda policy: Native().serve(policy, 0),
        )

    diagnostic = Overoptimisation(
        tasks=WorkedSolutions(size=3), gold=Regex(pattern="[a-m]"), n=4, sampling=Sampling(max_tokens=4)
    )
    found = diagnostic.examine(subject("tiny"), subject("reward")).values
    assert [row["n"] for row in found["best_of"]] == [1, 2, 4] and found["tasks"] == 3
    assert found["best_of"][2]["proxy"]["mean"] == 0.0, "a new head gives 0"
    with pytest.raises(UserError, match="'tiny' has no reward head"):
        diagnostic.examine(subject("tiny"), subject("tiny"))


def test_a_run_has_its_steps_beside_the_best_of_n(tmp_path: Path) -> None:
    """Recorded rollouts of two steps: proxy as recorded, gold by its reward, KL from the first policy."""
    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=128)
    reward = load_policy("reward", Model(source=str(folder), head="reward"), {}, torch.device("cpu"))
    reward.save(tmp_path / "reward")
    tasks = WorkedSolutions(size=3)
    server = Native().serve(load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu")), 0)

    def rollout(text: str, value: float, higher: float) -> dict[str, object]:
        task = tasks.load()[0]
        prompt = server.bind().prompt(task).token_ids.tolist()
        ids = prompt + list(text.encode())
        logp = wait_for(server.bind().logp(np.array(ids)))[len(prompt) - 1 :]
        return {
            "task_key": task.key, "prompt": "", "completion": text, "reward": value, "score_status": "ok",
            "stop_reason": "stop", "token_ids": ids, "trained": [False] * len(prompt) + [True] * len(text),
            "sampled_logp": [None] * len(prompt) + [float(x) + higher / len(text) for x in logp],
        }  # fmt: skip

    unknown = {**rollout("ab", 9.0, 0.0), "task_key": "another"}
    steps = [(1, [rollout("ab", 1.0, 0.0), rollout("12", 2.0, 0.0), unknown]), (5, [rollout("12", 3.0, 0.5)])]

    def subject(name: str) -> Subject:
        path = str(tmp_path / name)
        return Subject(
            name=name,
            load=lambda: load_policy("policy", Model(source=path), {}, torch.device("cpu")),
            serve=lambda policy: Native().serve(policy, 0),
            record=lambda: Record(
                policy=subject("tiny"), reward_model=subject("reward"), steps=lambda most: steps, alarms=[(4, "judge")]
            ),
        )

    diagnostic = Overoptimisation(
        tasks=tasks, gold=Regex(pattern="[a-m]"), n=2, first=2, sampling=Sampling(max_tokens=4)
    )
    found = diagnostic.examine(subject("run"))
    assert found.values["tasks"] == 2 and found.values["policy"] == "tiny"
    one, last = found.values["steps"]
    assert (one["step"], one["rollouts"], one["proxy"]["mean"], one["gold"]["mean"]) == (1, 2, 1.5, 0.5)
    assert (last["step"], last["rollouts"], last["gold"]["mean"]) == (5, 1, 0.0)
    assert one["kl"]["mean"] == pytest.approx(0.0, abs=1e-5) and last["kl"]["mean"] == pytest.approx(0.5, abs=1e-4)
    assert found.values["peak_step"] == 1 and found.values["alarms"] == [{"step": 4, "message": "judge"}]
    assert found.lines[-1] == "gold is highest at step 1; alarms: 4 (judge)"
    with pytest.raises(UserError, match="a run is asked for"):
        diagnostic.examine(Subject(name="tiny", load=subject("tiny").load, serve=subject("tiny").serve))
    with pytest.raises(UserError, match="got 3 names"):
        diagnostic.examine(*[subject("tiny")] * 3)
