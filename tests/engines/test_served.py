"""Engines whose servers are other programs, on stand-ins that check and record every request."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
import torch

from posttrain.component.user_code import allowing
from posttrain.components.rewards.function import Function
from posttrain.engines import Sampling, wait_for
from posttrain.engines._protocol import Link, Place, Unanswered
from posttrain.engines._remote import RemoteServer
from posttrain.engines.native import Native
from posttrain.engines.sglang import SGLang
from posttrain.engines.vllm import VLLM
from posttrain.errors import AlarmStop, UserError
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.recipes.files import find_recipe
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.launch import resume, start
from posttrain.runs.live import LiveView
from posttrain.serving.stand_in import FIRST
from tests.conformance.test_methods import made_small
from tests.engines.standing_in import Running, standing_in

PROMPT = np.array([72, 101, 108, 108, 111], np.int64)
KEYS = [3, 2**63 + 5, 77]
KINDS: dict[str, type[VLLM | SGLang]] = {"vllm": VLLM, "sglang": SGLang}
FAST: dict[str, Any] = {"backoff_seconds": 0.01, "retries": 1}
both = pytest.mark.parametrize("kind", sorted(KINDS))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_folder(tmp_path_factory.mktemp("models") / "tiny", layers=2, width=16, heads=2, kv_heads=1, context=512)


@pytest.fixture
def two(tiny: Path, request: pytest.FixtureRequest) -> Iterator[list[Running]]:
    with standing_in(tiny, getattr(request, "param", "vllm")) as running:
        yield running


def policy_of(folder: Path) -> Any:
    return load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu"))


def engine_of(running: list[Running], kind: str = "vllm", **settings: Any) -> VLLM | SGLang:
    return KINDS[kind](servers=tuple(one.address for one in running), **{**FAST, **settings})


def remote(engine: VLLM | SGLang, policy: Any) -> RemoteServer:
    server = engine.serve(policy, 0)
    assert isinstance(server, RemoteServer)
    return server


def complete(server: Any, sampling: Sampling, keys: list[int] = KEYS) -> list[Any]:
    found: list[Any] = wait_for(server.complete(PROMPT, keys, sampling))
    return found


def same(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.token_ids.tolist() == other.token_ids.tolist()
        assert one.logp.tolist() == other.logp.tolist()
        assert (one.text, one.stop_reason, one.version) == (other.text, other.stop_reason, other.version)


@both
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(max_tokens=7),
        Sampling(max_tokens=6, temperature=0.0),
        Sampling(max_tokens=30, stop_token_ids=tuple(range(60, 90))),
        Sampling(max_tokens=60, stop=("a", "Z", "7")),
    ],
)
def test_completions_are_those_of_this_process(kind: str, sampling: Sampling, tiny: Path) -> None:
    policy = policy_of(tiny)
    with standing_in(tiny, kind) as running:  # type: ignore[arg-type]
        found = complete(remote(engine_of(running, kind), policy), sampling)
    same(found, complete(Native().serve(policy, 0), sampling))


def test_processed_log_probabilities_are_of_the_temperature(two: list[Running], tiny: Path) -> None:
    """The stand-in returns those at the temperature before cuts, which are the processed ones where nothing is cut."""
    policy, sampling = policy_of(tiny), Sampling(max_tokens=7, temperature=0.7)
    found = complete(remote(engine_of(two, logprobs="processed"), policy), sampling)
    same(found, complete(Native().serve(policy, 0), sampling))


@pytest.mark.parametrize(
    ("kind", "routes"),
    [
        ("vllm", ["/pause?mode=wait", "/collective_rpc", "/update_weight_version", "/resume", "/weight_info"]),
        ("sglang", ["/pause_generation", "/update_weights_from_disk", "/continue_generation", "/model_info"]),
    ],
)
def test_weights_go_once_a_version_and_in_order(kind: str, routes: list[str], tiny: Path) -> None:
    policy = policy_of(tiny)
    with standing_in(tiny, kind) as running:  # type: ignore[arg-type]
        server = remote(engine_of(running, kind), policy)
        for _ in range(2):
            complete(server, Sampling(max_tokens=3))
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.add_(0.01)
        policy.version += 1
        complete(server, Sampling(max_tokens=3))
        for one in running:
            generate = engine_of(running, kind).protocol.generate
            assert [path for path in one.paths() if path != generate] == routes * 2
            label = one.service.label
            assert label.startswith("1-") and len(label) == 18
        timing = server.take_timing()
        bodies = [e["body"] for one in running for e in one.service.requests_seen if e["path"] == generate]
    size = sum(p.numel() * p.element_size() for p in policy.parameters())
    assert 2 * size <= timing["weight_bytes"] < 2 * size + 2_000_000, "weights and the tokenizer, twice"
    assert not server.take_timing()
    names = [body.get("request_id") or body["rid"] for body in bodies]
    assert len(names) == 9 and {name.partition("-")[0] for name in names} == {f"{key:016x}" for key in KEYS}
    folders = [
        (e["body"].get("kwargs") or {}).get("weights_path") or e["body"].get("model_path")
        for e in running[0].service.requests_seen
        if e["path"] in ("/collective_rpc", "/update_weights_from_disk")
    ]
    assert len(set(folders)) == 2 and not any(Path(folder).exists() for folder in folders)


@both
def test_an_unknown_version_is_refused(kind: str, tiny: Path) -> None:
    with standing_in(tiny, kind) as running:  # type: ignore[arg-type]
        engine = engine_of(running, kind)
        engine.check({})
        running[1].service.version = "0.34.1"
        with pytest.raises(UserError, match=r"is version 0\.34\.1; requests are written for 0\.(33|5\.23)"):
            engine.check({})
        running[1].service.version = {"vllm": "0.330", "sglang": "0.5.231"}[kind]
        with pytest.raises(UserError, match="is version"):
            engine.check({})


def test_a_server_of_another_program_is_refused(two: list[Running]) -> None:
    with pytest.raises(UserError, match=r"refuses GET /server_info \(status 404\)"):
        engine_of(two, "sglang").check({})


@pytest.mark.parametrize(
    ("settings", "sampling", "message"),
    [
        ({}, {"temperature": 0.7}, r"stages\.rl\.temperature=0\.7 with engine\.logprobs=raw"),
        ({}, {"top_k": 5}, r"stages\.rl\.top_k is set"),
        ({}, {"top_p": 0.9}, r"stages\.rl\.top_p is set"),
        ({"logprobs": "processed"}, {"min_p": 0.1}, r"stages\.rl\.min_p is set"),
    ],
)
def test_traps_of_log_probabilities_are_refused_before_sampling(
    settings: dict[str, Any], sampling: dict[str, Any], message: str, two: list[Running], tiny: Path
) -> None:
    engine = engine_of(two, **settings)
    with pytest.raises(UserError, match=message):
        engine.check({"evaluation": Sampling(temperature=0.0), "stages.rl": Sampling(**sampling)})
    with pytest.raises(UserError, match=message.replace(r"stages\.rl", "sampling")):
        complete(remote(engine, policy_of(tiny)), Sampling(**sampling))
    assert not two[0].paths() and not two[1].paths()


def test_what_is_refused_by_the_settings() -> None:
    with pytest.raises(
        UserError, match="engine=vllm needs servers, which you start: VLLM_SERVER_DEV_MODE=1 vllm serve"
    ):
        VLLM().check({})
    base = find_recipe("grpo")
    changed = override(base, ["engine=vllm", "engine.servers=a:8000, b:8000"])
    assert changed.engine == VLLM(servers=("a:8000", "b:8000"))
    for servers, message in (("a", "is no HOST:PORT"), ("http://a:80", "is no HOST:PORT"), ("a:1,a:1", "named twice")):
        with pytest.raises(UserError, match=message):
            override(base, ["engine=vllm", f"engine.servers={servers}"])


def test_samplers_of_a_cluster_are_not_combined_with_servers(tiny: Path) -> None:
    recipe = made_small(find_recipe("grpo"), tiny)
    from posttrain.cluster.ray import Ray

    recipe = replace(recipe, engine=VLLM(servers=("a:1",)), cluster=Ray())
    context = RunContext(recipe, torch.device("cpu"))
    with pytest.raises(UserError, match="engine=vllm samples on servers that you start, and cluster=ray"):
        context.check(context.first_models())


# Faults


def test_a_server_that_is_not_there_is_named_before_the_run(two: list[Running]) -> None:
    engine = engine_of(two)
    two[1].end()
    with pytest.raises(UserError, match=rf"vLLM server {two[1].address} does not answer: Connect.*Is it running"):
        engine.check({})
    two[1] = Running(Path("pebble"), "vllm", two[1].port)
    engine.check({})


@pytest.mark.slow
def test_a_dead_server_is_left_out_and_comes_back(two: list[Running], tiny: Path) -> None:
    policy = policy_of(tiny)
    server, expected = remote(engine_of(two), policy), complete(Native().serve(policy, 0), Sampling(max_tokens=5))
    complete(server, Sampling(max_tokens=5))
    assert not server.take_notes()
    two[0].end()
    same(complete(server, Sampling(max_tokens=5)), expected)
    (note,) = server.take_notes()
    assert note.startswith(f"the vLLM server {two[0].address} is left out: ")
    two[0] = Running(tiny, "vllm", two[0].port)
    policy.version += 1
    complete(server, Sampling(max_tokens=5))
    assert server.take_notes() == [f"the vLLM server {two[0].address} is used again"]
    assert two[0].service.label.startswith("1-")


@pytest.mark.slow
def test_a_slow_server_is_named_and_its_requests_go_to_another_one(two: list[Running], tiny: Path) -> None:
    policy = policy_of(tiny)
    server = remote(engine_of(two), policy)
    complete(server, Sampling(max_tokens=5))
    server._engine = engine_of(two, timeout_seconds=3.0, retries=0)
    slow, waiting = two[0].service, asyncio.Event()

    async def never(*_: Any) -> Any:
        await waiting.wait()

    slow._complete_key = never  # type: ignore[method-assign,assignment]
    same(complete(server, Sampling(max_tokens=5)), complete(Native().serve(policy, 0), Sampling(max_tokens=5)))
    assert server.take_notes() == [f"the vLLM server {two[0].address} is left out: ReadTimeout"]


@pytest.mark.slow
def test_without_any_server_the_run_stops_in_one_sentence(two: list[Running], tiny: Path) -> None:
    server = remote(engine_of(two), policy_of(tiny))
    complete(server, Sampling(max_tokens=5))
    for one in two:
        one.end()
    with pytest.raises(AlarmStop, match=r"no vLLM server is left \(.*start them again and resume the run"):
        complete(server, Sampling(max_tokens=5))
    two[:] = [Running(tiny, "vllm", one.port) for one in two]


@pytest.mark.slow
def test_a_server_that_was_started_again_is_noticed(two: list[Running], tiny: Path) -> None:
    server = remote(engine_of(two), policy_of(tiny))
    complete(server, Sampling(max_tokens=5))
    two[1].end()
    two[1] = Running(tiny, "vllm", two[1].port)
    with pytest.raises(
        AlarmStop, match=f"sampled with the weights '{FIRST}', and was given '0-.*started again.*resume"
    ):
        complete(server, Sampling(max_tokens=5))


def test_weights_that_were_not_loaded_are_noticed(two: list[Running], tiny: Path) -> None:
    """The server gives the label that it got, and samples with what it had."""
    policy = policy_of(tiny)
    had = two[0].service._tokens
    two[0].service._load = lambda folder: had
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(3.0)
    with pytest.raises(UserError, match=rf"log-probabilities of the vLLM server {two[0].address} differ by \d"):
        complete(remote(engine_of(two), policy), Sampling(max_tokens=20))


@pytest.mark.slow
def test_a_shorter_context_is_noticed(two: list[Running], tiny: Path) -> None:
    for one in two:
        whole = one.service._complete_key

        async def cut(*given: Any, whole: Any = whole) -> Any:
            done = await whole(*given)
            return replace(done, token_ids=done.token_ids[:2], logp=done.logp[:2])

        one.service._complete_key = cut  # type: ignore[method-assign,assignment]
    with pytest.raises(UserError, match=r"ended a completion after 2 of 9 tokens \(length\), at none of the ends"):
        complete(remote(engine_of(two), policy_of(tiny)), Sampling(max_tokens=9))


# The stand-in


async def _asked(running: Running, path: str, body: Any) -> Any:
    async with httpx2.AsyncClient() as client:
        return await Link(Place(running.address, 0), client, "vLLM").post(path, body)


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/inference/v1/generate", {"token_ids": [1]}, "status 400"),
        ("/collective_rpc", {"method": "save_model", "kwargs": {}}, "method: "),
        ("/pause?mode=soon", {}, "it is abort, wait or keep"),
        ("/update_weight_version", {"version": "x"}, "did you mean 'new_version'"),
        ("/start_weight_update", {}, "has no body"),
    ],
)
def test_the_stand_in_takes_nothing_else(path: str, body: Any, message: str, two: list[Running]) -> None:
    with pytest.raises(UserError, match=message):
        wait_for(_asked(two[0], path, body))


def test_the_stand_in_changes_weights_only_while_it_is_paused(two: list[Running], tiny: Path) -> None:
    body = {"method": "reload_weights", "kwargs": {"weights_path": str(tiny)}}
    with pytest.raises(Unanswered, match=r"status 409.*pause first"):
        wait_for(_asked(two[0], "/collective_rpc", body))
    wait_for(_asked(two[0], "/pause?mode=wait", {}))
    wait_for(_asked(two[0], "/collective_rpc", body))
    with pytest.raises(Unanswered, match="have no label yet"):
        wait_for(_asked(two[0], "/resume", {}))


# Runs

SCORE = """
def score(completion, task):
    return (sum(map(ord, completion)) + len(task.prompt)) % 7 / 6
"""


def learning(tiny: Path, folder: Path) -> Recipe:
    """A recipe whose reward distinguishes the noise of a tiny model, so that it learns something."""
    (folder / "mine.py").write_text(SCORE)
    recipe = made_small(find_recipe("grpo"), tiny)
    stage: Any = next(iter(recipe.stages.values()))
    stage = replace(stage, reward=Function(path=f"{folder}/mine.py:score"), steps=3)
    return replace(recipe, stages={"rl": stage}, engine=Native(slots=16))


def run_of(recipe: Recipe, folder: Path) -> Path:
    path, _ = start(recipe, folder, LiveView(lines=True))
    return path


def metrics_of(run: Path) -> list[dict[str, float]]:
    """All but the entropy, which servers do not return."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "entropy"} for row in rows]


@pytest.mark.parametrize(
    ("kind", "settings", "route"),
    [
        ("vllm", {}, "/collective_rpc"),
        pytest.param("vllm", {"transfer": "gloo"}, "/finish_weight_update", marks=pytest.mark.slow),
        pytest.param("sglang", {}, "/update_weights_from_disk", marks=pytest.mark.slow),
        pytest.param("sglang", {"transfer": "gloo"}, "/end_weight_update", marks=pytest.mark.slow),
    ],
)
def test_learning_through_servers_is_learning_here(
    kind: str, settings: dict[str, Any], route: str, tiny: Path, tmp_path: Path
) -> None:
    recipe = learning(tiny, tmp_path)
    here = run_of(recipe, tmp_path / "here")
    with standing_in(tiny, kind) as running:  # type: ignore[arg-type]
        there = run_of(replace(recipe, engine=engine_of(running, kind, **settings)), tmp_path / "there")
        assert running[0].paths().count(route) == 4, "the first weights, and those after each of three steps"
    weights = "model/model.safetensors"
    assert (there / weights).read_bytes() == (here / weights).read_bytes()
    assert (there / weights).read_bytes() != (tiny / "model.safetensors").read_bytes()
    assert metrics_of(there) == metrics_of(here)
    timing = [json.loads(line) for line in (there / "timing.jsonl").read_text().splitlines()]
    assert sum("weight_bytes" in row and row["seconds_weights"] > 0 for row in timing) == 3, "the last are evaluated"


@pytest.mark.slow
def test_a_run_whose_server_is_started_again_is_resumed(two: list[Running], tiny: Path, tmp_path: Path) -> None:
    recipe = learning(tiny, tmp_path)
    here, service = run_of(recipe, tmp_path / "here"), two[0].service
    take, first, taken = service._take, service._tokens, []

    async def again(folder: Path) -> None:
        """The third weights are lost: it has those that it was started with."""
        await take(folder)
        taken.append(folder)
        if len(taken) == 3:
            service._tokens = first

    async def forget(*given: Any) -> Any:
        if len(taken) == 3:
            service.label = FIRST
        return await complete_key(*given)

    complete_key = service._complete_key
    service._take, service._complete_key = again, forget  # type: ignore[method-assign,assignment]
    recipe = replace(recipe, engine=engine_of(two))
    with pytest.raises(AlarmStop, match="it was started again, or something else changes its weights"):
        run_of(recipe, tmp_path / "there")
    folder = next((tmp_path / "there").iterdir())
    taken.append(folder)
    with allowing(trust=True):
        resume(folder, LiveView(lines=True))
    assert (folder / "model/model.safetensors").read_bytes() == (here / "model/model.safetensors").read_bytes()
    assert metrics_of(folder) == metrics_of(here)
