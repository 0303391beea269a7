"""The faults of an endpoint as a user meets them: exit codes, kills in the middle, answers that runs share."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from posttrain.cli import main
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from tests.serving import faulty
from tests.serving.faulty import FaultyServer
from tests.serving.test_outage import begin, direct, opinion, record, scored
from tests.stages.conftest import small, tiny_folder

__all__ = ["direct", "small", "tiny_folder"]
pytestmark = pytest.mark.slow
Small = Callable[..., Recipe]


def counted(handler: faulty.Handler, asked: faulty.Asked) -> None:
    """A score that states its tokens."""
    text = f"Score: {sum(map(ord, faulty.reply_to(asked))) % 11}"
    body = json.loads(faulty.completion(asked, text))
    handler.send(200, json.dumps({**body, "usage": {"prompt_tokens": 20, "completion_tokens": 5}}))


def new(recipe: Recipe, root: Path) -> Path:
    """The folder of a run that has not begun, and that no process holds."""
    with begin(recipe, root) as store:
        return store.folder


def texts_of(server: FaultyServer) -> Counter[str]:
    return Counter(json.dumps(asked, sort_keys=True) for asked in server.asked)


def test_kills_in_the_middle_of_verdicts_change_nothing_and_nothing_is_sent_twice(small: Small, tmp_path: Path) -> None:
    """One request at a time, so that only the one that was under way is sent again after each of two kills."""
    child: list[subprocess.Popen[bytes]] = []

    def kills(handler: faulty.Handler, asked: faulty.Asked) -> None:
        child[-1].send_signal(signal.SIGKILL)
        opinion(handler, asked)

    with FaultyServer(usual=opinion).running() as server:
        recipe = override(scored(small, server), ["models.judge.endpoint.concurrency=1"])
        whole, killed = new(recipe, tmp_path / "whole"), new(recipe, tmp_path / "killed")
        assert main(["resume", str(whole)]) == 0 and len(server.asked) == 36
        undisturbed = texts_of(server)
        server.asked.clear()
        for left in (6, 13):  # in the first step, in the second
            server.script = [opinion] * left + [kills]
            words = [sys.executable, "-m", "posttrain", "resume", str(killed)]
            child.append(subprocess.Popen(words, env={**os.environ, "OMP_NUM_THREADS": "1"}))
            assert child[-1].wait(120) == -signal.SIGKILL
        assert main(["resume", str(killed)]) == 0
    assert record(killed) == record(whole)
    again = texts_of(server) - undisturbed
    assert again.total() == 2 and texts_of(server).keys() == undisturbed.keys()


def test_an_endpoint_that_is_down_and_a_budget_end_a_run_with_code_3(
    small: Small, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    budget = ["models.judge.endpoint.budget={tokens: 900}", "models.judge.endpoint.concurrency=1"]
    with FaultyServer(usual=counted).running() as server:
        recipe = override(scored(small, server), ["models.judge.endpoint.concurrency=4"])
        down = new(recipe, tmp_path / "down")
        server.script = [counted] * 14 + [faulty.status(503)] * 100
        server.models = faulty.status(503)
        assert main(["resume", str(down)]) != 0, "the check at the start finds it down"
        server.models = faulty.models("tester")
        assert not server.asked

        def dies(handler: faulty.Handler, asked: faulty.Asked) -> None:
            server.models = server.usual = faulty.status(503)
            handler.send(503, "{}")

        server.script = [counted] * 14 + [dies]
        assert main(["resume", str(down)]) == 3
        assert "is down after 3 attempts" in capfd.readouterr().err
        server.models, server.usual, server.script = faulty.models("tester"), counted, []
        spends = new(override(recipe, budget), tmp_path / "spends")
        server.asked.clear()
        assert main(["resume", str(spends)]) == 3
        sent = 25 * len(server.asked)
        assert "could pass its budget of 900 tokens" in capfd.readouterr().err
        assert 250 <= sent <= 900, "it stops before the request that could pass it"
        assert main(["resume", str(spends)]) == 3 and 25 * len(server.asked) == sent


def test_runs_share_answers_on_request_and_state_what_they_cost(small: Small, tmp_path: Path) -> None:
    shared = f"models.judge.endpoint.store={tmp_path / 'answers.db'}"
    prices = "models.judge.endpoint.budget={prompt_price: 2.0, answer_price: 4.0}"

    def cost(folder: Path) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((folder / "summary.json").read_text())["endpoints"]["judge"]
        return found

    with FaultyServer(usual=counted).running() as server:
        alone = scored(small, server)
        recipe = override(alone, [shared, prices])
        runs = [new(one, tmp_path / name) for name, one in (("a", recipe), ("b", recipe), ("c", alone))]
        asked = []
        for run in runs:
            server.asked.clear()
            assert main(["resume", str(run)]) == 0
            asked.append(len(server.asked))
    assert asked == [36, 0, 36], "the second sends nothing, and one without the store sends all"
    assert record(runs[0]) == record(runs[1]) == record(runs[2])
    tokens = {"answers": 36, "prompt_tokens": 720, "completion_tokens": 180, "estimated_tokens": 0}
    assert cost(runs[0]) == {**tokens, "cost": pytest.approx((720 * 2 + 180 * 4) / 1e6)}
    assert cost(runs[1]) == {"answers": 36, **dict.fromkeys([*tokens][1:], 0), "cost": 0.0}
    assert cost(runs[2]) == {**tokens, "cost": None}


def hangs() -> faulty.Behaviour:
    """Never answers the first request, however often it is sent, and all others at once."""
    first: list[str] = []

    def behave(handler: faulty.Handler, asked: faulty.Asked) -> None:
        name = json.dumps(asked, sort_keys=True)
        with handler.server.lock:
            first.extend([] if first else [name])
        (faulty.silence(3.0) if name == first[0] else opinion)(handler, asked)

    return behave


def refuses() -> faulty.Behaviour:
    """Refuses every third request, once each."""
    seen = Counter[str]()

    def behave(handler: faulty.Handler, asked: faulty.Asked) -> None:
        name = json.dumps(asked, sort_keys=True)
        with handler.server.lock:
            seen[name] += 1
            first = seen[name] == 1 and len(seen) % 3 == 0
        (faulty.status(429, Retry_After="0.02") if first else opinion)(handler, asked)

    return behave


def exchanged() -> faulty.Behaviour:
    """Another model answers from the 13th request on."""
    count = [0]

    def behave(handler: faulty.Handler, asked: faulty.Asked) -> None:
        with handler.server.lock:
            count[0] += 1
            other = count[0] > 12
        handler.send(200, faulty.completion(asked, "Score: 9")) if other else opinion(handler, asked)

    return behave


FAULTS: dict[str, tuple[Callable[[], faulty.Behaviour], list[str], int, str]] = {
    "hangs": (hangs, ["timeout_seconds=0.1", "verdict_seconds=0.4"], 0, ""),
    "429": (refuses, ["concurrency=8"], 0, "refused"),
    "garbage": (lambda: faulty.garbage("<html>"), ["retries=1"], 3, "rollouts of this step could not be scored"),
    "cut": (lambda: faulty.truncated, ["retries=1"], 3, "rollouts of this step could not be scored"),
    "empty": (lambda: faulty.garbage(""), ["retries=1"], 3, "rollouts of this step could not be scored"),
    "drift": (exchanged, ["canaries={items: 4, every: 12, most: 0.5}"], 3, "canary items otherwise than at first"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_of_the_table_in_a_whole_run(
    fault: str, small: Small, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make, settings, code, said = FAULTS[fault]
    with FaultyServer(usual=make()).running() as server:
        own = [f"models.judge.endpoint.{setting}" for setting in settings]
        run = new(override(scored(small, server), own), tmp_path)
        assert main(["resume", str(run)]) == code
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(steps) == 3 if code == 0 else len(steps) < 3, "no step is learned from where the run stops"
    assert (sum(step["grader_errors"] for step in steps) > 0) == (fault == "hangs"), "others go on"
    if code:
        assert said in capfd.readouterr().err
    else:
        assert said in (run / "events.jsonl").read_text()
