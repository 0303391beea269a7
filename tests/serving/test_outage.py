"""Whole runs that are scored over the network, with an outage in the middle."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.errors import AlarmStop, UserError
from posttrain.recipes.overrides import override, to_tree
from posttrain.recipes.tree import Recipe
from posttrain.runs.answers import FILE
from posttrain.runs.context import RunContext
from posttrain.runs.live import LiveView
from posttrain.runs.run import Run
from posttrain.runs.store import RunStore
from tests.serving import faulty
from tests.serving.faulty import FaultyServer
from tests.stages.conftest import small, tiny_folder

__all__ = ["small", "tiny_folder"]

Small = Callable[..., Recipe]


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("JUDGE_KEY", "sk-very-secret")


def opinion(handler: faulty.Handler, asked: faulty.Asked) -> None:
    """A score that is a function of everything that was asked."""
    number = sum(map(ord, faulty.reply_to(asked))) % 11
    handler.send(200, faulty.completion(asked, f"Well. Score: {number}"))


def scored(small: Small, server: FaultyServer) -> Recipe:
    recipe = override(
        small(),
        [
            f"models.judge={{source: '{server.url}', endpoint: {{api_key_env: JUDGE_KEY, retries: 2}}}}",
            "models.judge.endpoint.backoff_seconds=0.01",
            "models.judge.endpoint.max_pause_seconds=0.02",
            "rl.reward.kind=judge",
            "rl.audit=null",  # the stand-in judges at random
            "rl.reward.template={question} {completion}",
            "evaluation.verifier=match",
            "checkpoints.every_steps=1",
        ],
    )
    return recipe


def begin(recipe: Recipe, root: Path) -> RunStore:
    return RunStore.create(root, recipe.name, to_tree(recipe))


def go_on(recipe: Recipe, store: RunStore) -> None:
    context = RunContext(recipe, torch.device("cpu"))
    models = context.first_models()
    context.check(models)
    with store:
        Run(context, store, LiveView(lines=True)).execute(models)


def record(folder: Path) -> dict[str, Any]:
    """Everything of a run that may not depend on interruptions; what an endpoint refused is noted, and left out."""
    names = ["metrics.jsonl", "events.jsonl", "evals.jsonl"]
    files = [*(folder / n for n in names), *sorted(folder.glob("rollouts/*")), *sorted(folder.glob("evals/*.parquet"))]
    found = {str(f.relative_to(folder)): f.read_bytes() for f in files if f.exists()}
    lines = found.get("events.jsonl", b"").splitlines()
    return found | {"events.jsonl": [line for line in lines if b"refused" not in line]}


@pytest.mark.slow
def test_a_run_with_outages_ends_as_the_undisturbed_one(small: Small, tmp_path: Path) -> None:
    with FaultyServer(usual=opinion).running() as server:
        recipe = scored(small, server)
        whole = begin(recipe, tmp_path / "whole")
        go_on(recipe, whole)
        asked = len(server.asked)
        assert asked == 36, "3 steps of 3 tasks and 4 attempts"

        # A hiccup: four requests in a row come to nothing, and are tried again.
        server.script = [opinion] * 5 + [faulty.status(503), faulty.garbage("<html>"), faulty.hang_up, faulty.truncated]
        hiccup = begin(recipe, tmp_path / "hiccup")
        go_on(recipe, hiccup)
        assert record(hiccup.folder) == record(whole.folder)

        # An outage: in the middle of the second step nothing answers any more.
        down = faulty.status(503, "out")

        def dies(handler: faulty.Handler, given: faulty.Asked) -> None:
            server.models = server.usual = down
            down(handler, given)

        server.script = [opinion] * 17 + [dies]
        broken = begin(recipe, tmp_path / "broken")
        with pytest.raises(AlarmStop, match="role 'judge' is down after 3 attempts"):
            go_on(recipe, broken)
        store = RunStore.open(broken.folder, reading=True)
        assert [entry["step"] for entry in store.metrics()] == [1], "no partly scored step was learned from"

        # It comes back, and thinks otherwise about what it had been asked before.
        heard = sum(line.count(b'"key"') for line in (broken.folder / FILE).read_bytes().splitlines())
        before = len(server.asked)
        server.models, server.usual = faulty.models("tester"), opinion
        go_on(recipe, RunStore.open(broken.folder))
        assert record(broken.folder) == record(whole.folder)
        assert len(server.asked) - before == 36 - heard, "what had been answered was not asked again"
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(b"secret" in content for content in files), "the key is nowhere in the record"


@pytest.mark.slow
def test_recorded_answers_hold_whatever_the_endpoint_replies_later(small: Small, tmp_path: Path) -> None:
    """A judge that replies differently to each request: a step that is done again gets what it got before."""
    calls = [0]

    def moody(handler: faulty.Handler, asked: faulty.Asked) -> None:
        with handler.server.lock:
            calls[0] += 1
            number = calls[0] % 11
        handler.send(200, faulty.completion(asked, f"Score: {number}"))

    with FaultyServer(usual=moody).running() as server:
        recipe = scored(small, server)
        first = begin(recipe, tmp_path)
        go_on(recipe, first)
        said = record(first.folder)
        for checkpoint in (first.folder / "checkpoints").iterdir():
            for path in sorted(checkpoint.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            checkpoint.rmdir()
        go_on(recipe, RunStore.open(first.folder))
        assert record(first.folder) == said
        assert calls[0] == 36


def test_a_judge_that_cannot_be_read_stops_the_run_with_evidence(small: Small, tmp_path: Path) -> None:
    def mumbles(handler: faulty.Handler, asked: faulty.Asked) -> None:
        handler.send(200, faulty.completion(asked, "hm"))

    with FaultyServer(usual=mumbles).running() as server:
        recipe = scored(small, server)
        store = begin(recipe, tmp_path)
        with pytest.raises(
            AlarmStop, match=r"12 of 12 rollouts of this step could not be scored.*reply has no verdict.*'hm'"
        ):
            go_on(recipe, store)
        [*_, last] = sorted(store.folder.glob("rollouts/*"))
        assert last.name == "step_000001.parquet", "what could not be judged is in the record"


def test_an_endpoint_cannot_be_the_policy(small: Small) -> None:
    with pytest.raises(UserError, match="no tokens to learn from"):
        recipe = override(small(), ["models.policy={source: 'http://127.0.0.1:1/v1'}"])
        RunContext(recipe, torch.device("cpu")).first_models()


def test_a_judge_cannot_be_the_verifier_yet_and_that_is_reported_before_the_run(small: Small) -> None:
    with FaultyServer().running() as server:
        recipe = override(scored(small, server), ["evaluation.verifier=null"])
        context = RunContext(recipe, torch.device("cpu"))
        with pytest.raises(UserError, match=r"scored by judge, .*evaluation.verifier=match"):
            context.check(context.first_models())
