"""Weights to servers in four phases: the same run, each request checked and recorded by the stand-in."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from httpx2 import AsyncClient

from posttrain.engines import Sampling, wait_for
from posttrain.engines._phases import named_types, named_weights, pieces
from posttrain.engines._protocol import Link, Place, Unanswered
from posttrain.engines._remote import RemoteServer
from posttrain.engines.native import Native
from posttrain.engines.sglang import SGLang
from posttrain.engines.vllm import VLLM, update_info
from posttrain.errors import AlarmStop, UserError
from posttrain.models import LoRA, Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.serving.receiving import FromDistributed
from tests.engines.standing_in import Running, standing_in

PROMPT = np.array([72, 101, 108, 108, 111], np.int64)
KEYS = [3, 2**63 + 5, 77]
ONCE = ["/start_weight_update", "/update_weights", "/finish_weight_update", "/resume", "/weight_info"]
ADDRESS = {"master_address": "127.0.0.1", "master_port": 1, "world_size": 2}
BEFORE = ["/pause?mode=wait", "/weight_info"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_folder(tmp_path_factory.mktemp("models") / "tiny", layers=2, width=16, heads=2, kv_heads=1, context=512)


@pytest.fixture
def two(tiny: Path) -> Iterator[list[Running]]:
    with standing_in(tiny, "vllm") as running:
        yield running


def policy_of(folder: Path, **settings: Any) -> Any:
    model = Model(source=str(folder), trained=True, **settings)
    return load_policy("policy", model, {}, torch.device("cpu"))


def remote(running: list[Running], policy: Any, **settings: Any) -> RemoteServer:
    given: dict[str, Any] = {"backoff_seconds": 0.01, "retries": 1, "timeout_seconds": 20.0, **settings}
    server = VLLM(servers=tuple(one.address for one in running), transfer="gloo", **given).serve(policy, 0)
    assert isinstance(server, RemoteServer)
    return server


def complete(server: Any) -> list[Any]:
    found: list[Any] = wait_for(server.complete(PROMPT, KEYS, Sampling(max_tokens=5)))
    return [(one.token_ids.tolist(), one.logp.tolist()) for one in found]


def changed(policy: Any) -> None:
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.1)
    policy.version += 1


def here(policy: Any, folder: Path) -> list[Any]:
    """What the weights of now write in this process, from files."""
    policy.save(folder)
    return complete(Native().serve(policy_of(folder), 0))


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"lora": LoRA(rank=2)}], ids=["all", "adapters"])
def test_weights_go_in_four_phases_and_in_pieces(
    settings: dict[str, Any], two: list[Running], tiny: Path, tmp_path: Path
) -> None:
    policy = policy_of(tiny, **settings)
    server = remote(two, policy)
    assert complete(server) == here(policy, tmp_path / "first")
    changed(policy)
    server._phases._most = 8000  # type: ignore[union-attr]
    assert complete(server) == here(policy, tmp_path / "second")
    weights = named_weights(policy)
    size, cut = sum(t.nbytes for t in weights.values()), list(pieces(weights, 8000))
    assert server.take_timing()["weight_bytes"] == 2 * size and len(cut) > 3
    for rank, one in enumerate(two, 1):
        sent = [entry for entry in one.service.requests_seen if "generate" not in entry["path"]]
        first = [*BEFORE, "/init_weight_transfer_engine", *ONCE]
        second = [*BEFORE, ONCE[0], *["/update_weights"] * len(cut), *ONCE[2:]]
        assert [entry["path"] for entry in sent] == first + second
        info = sent[2]["body"]["init_info"]
        assert (info["rank_offset"], info["world_size"], info["master_address"]) == (rank, 3, "127.0.0.1")
        assert sent[3]["body"] is None and sent[4]["body"] == update_info(list(weights.items()))
        assert [entry["body"] for entry in sent[len(first) + 3 : -3]] == [update_info(piece) for piece in cut]
        assert sent[-3]["body"] == {"weight_version": one.service.label} and one.service.label.startswith("1-")


@pytest.mark.slow
def test_weights_go_to_sglang_in_a_session(tiny: Path, tmp_path: Path) -> None:
    policy = policy_of(tiny)
    with standing_in(tiny, "sglang") as running:
        given: dict[str, Any] = {"backoff_seconds": 0.01, "retries": 1, "timeout_seconds": 20.0}
        engine = SGLang(servers=tuple(one.address for one in running), transfer="gloo", **given)
        server: Any = engine.serve(policy, 0)
        assert complete(server) == here(policy, tmp_path / "first")
        changed(policy)
        server._phases._most = 8000
        assert complete(server) == here(policy, tmp_path / "second")
        weights = named_weights(policy)
        cut = list(pieces(weights, 8000))
        assert server.take_timing()["weight_bytes"] == 2 * sum(t.nbytes for t in weights.values()) and len(cut) > 3
        for rank, one in enumerate(running, 1):
            sent = [entry for entry in one.service.requests_seen if entry["path"] != "/generate"]
            before = ["/pause_generation", "/model_info"]
            after = ["/end_weight_update", "/continue_generation", "/model_info"]
            piece = "/update_weights_from_distributed"
            first = [*before, "/init_weights_update_group", "/begin_weight_update", piece, *after]
            second = [*before, "/begin_weight_update", *[piece] * len(cut), *after]
            assert [entry["path"] for entry in sent] == first + second
            assert (sent[0]["body"], sent[3]["body"], sent[-3]["body"]) == ({"mode": "retract"}, {}, {})
            group = {"rank_offset": rank, "world_size": 3, "group_name": "posttrain", "backend": "gloo"}
            assert {**sent[2]["body"], "master_port": 0} == {**ADDRESS, "master_port": 0, **group}
            bodies = [entry["body"] for entry in sent if entry["path"] == piece][1:]
            for own, body in zip(cut, bodies, strict=True):
                assert (body["names"], body["dtypes"], body["shapes"]) == named_types(own)
            assert [body["flush_cache"] for body in bodies] == [False] * (len(cut) - 1) + [True]
            assert [body.get("weight_version") for body in bodies] == [None] * (len(cut) - 1) + [one.service.label]
            assert one.service.label.startswith("1-")


@pytest.mark.slow
def test_sglang_takes_no_other_order_and_no_other_fields(tiny: Path) -> None:
    info = {
        "names": ["model.norm.weight"],
        "dtypes": ["float32"],
        "shapes": [[16]],
        "group_name": "a",
        "flush_cache": True,
    }
    path, group = "/update_weights_from_distributed", {**ADDRESS, "rank_offset": 1, "group_name": "a"}
    with standing_in(tiny, "sglang", 1) as (one,):
        refused(one, path, info, "there is no group a")
        refused(one, "/end_weight_update", {}, "409.*no update has begun")
        refused(one, "/begin_weight_update", {}, "409.*there is no group")
        refused(one, "/begin_weight_update", {"label": "1"}, "status 400")
        refused(one, "/init_weights_update_group", {**group, "backend": "nccl"}, "backend")
        refused(one, "/init_weights_update_group", {**group, "rank_offset": 0, "backend": "gloo"}, "trainer has rank 0")
        one.service._receiver._group, one.service._receiver.name = object(), "a"
        refused(one, path, info, "409.*no update has begun")
        refused(one, "/begin_weight_update", {}, "409.*while the server is paused")
        wait_for(_asked(one, "/pause_generation", {"mode": "retract"}))
        wait_for(_asked(one, "/begin_weight_update", {}))
        refused(one, "/begin_weight_update", {}, "409.*begins once")
        refused(one, "/continue_generation", {}, "409.*has not ended")
        refused(one, path, {**info, "group_name": "b"}, "there is no group b")
        refused(one, path, {**info, "names": ["model.norm"]}, "is no weight of this model")
        refused(one, path, {**info, "shapes": [[17]]}, r"is float32 \[17\]; this model's is \[16\]")
        refused(one, path, {**info, "load_format": "auto"}, "status 400")
        refused(one, "/end_weight_update", {}, "409.*weights have not come")
        one.service._last = FromDistributed(**{**info, "flush_cache": False, "weight_version": "1"})
        refused(one, "/end_weight_update", {}, "409.*flushed the cache")


def test_pieces_have_all_weights_in_order() -> None:
    weights = {
        name: torch.zeros(size, dtype=torch.bfloat16) for name, size in zip("abcd", (10, 10, 90, 1), strict=True)
    }
    assert [[name for name, _ in piece] for piece in pieces(weights, 40)] == [["a", "b"], ["c"], ["d"]]
    info = update_info([("a", weights["a"].reshape(2, 5))])["update_info"]
    assert info == {"names": ["a"], "dtype_names": ["bfloat16"], "shapes": [[2, 5]]}


async def _asked(running: Running, path: str, body: Any) -> Any:
    async with AsyncClient() as client:
        return await Link(Place(running.address, 0), client, "vLLM").post(path, body)


def refused(running: Running, path: str, body: Any, message: str) -> None:
    with pytest.raises((UserError, Unanswered), match=message):
        wait_for(_asked(running, path, body))


@pytest.mark.slow
def test_another_order_and_other_fields_are_refused(two: list[Running], tiny: Path) -> None:
    one, info = two[0], {"names": ["model.norm.weight"], "dtype_names": ["float32"], "shapes": [[16]]}
    refused(one, "/update_weights", {"update_info": info}, "409.*no update has begun")
    refused(one, "/finish_weight_update", {"weight_version": "1"}, "409.*no update has begun")
    refused(one, "/start_weight_update", None, "409.*there is no group")
    refused(one, "/init_weight_transfer_engine", {"master_port": 1}, "status 400")
    refused(one, "/init_weight_transfer_engine", {"init_info": {**ADDRESS, "rank_offset": 0}}, "the trainer has rank 0")
    one.service._receiver._group = object()
    refused(one, "/start_weight_update", None, "409.*while the server is paused")
    wait_for(_asked(one, "/pause?mode=wait", None))
    refused(one, "/start_weight_update", {}, "has no body")
    wait_for(_asked(one, "/start_weight_update", None))
    refused(one, "/resume", None, "409.*has not ended")
    for changes, message in (
        ({"names": ["model.norm"]}, "is no weight of this model"),
        ({"shapes": [[17]]}, r"is float32 \[17\]; this model's is \[16\]"),
        ({"dtype_names": ["nan"]}, r"is nan \[16\]"),
        ({"shapes": []}, "lists of one length"),
    ):
        refused(one, "/update_weights", {"update_info": {**info, **changes}}, message)
    refused(one, "/finish_weight_update", {"version": "1"}, "status 400")
    refused(one, "/finish_weight_update", {"weight_version": "1"}, "409.*weights have not come")


@pytest.mark.slow
def test_a_server_that_is_started_again_is_in_a_group_formed_anew(
    two: list[Running], tiny: Path, tmp_path: Path
) -> None:
    policy = policy_of(tiny)
    server = remote(two, policy)
    complete(server)
    two[1].end()
    changed(policy)
    assert complete(server) == here(policy, tmp_path / "alone")
    (note,) = server.take_notes()
    assert "is left out: it did not pause for the weights" in note
    two[1] = Running(tiny, "vllm", two[1].port)
    changed(policy)
    assert complete(server) == here(policy, tmp_path / "both")
    assert server.take_notes() == [f"the vLLM server {two[1].address} is used again"]
    worlds = [e["body"]["init_info"]["world_size"] for e in two[0].service.requests_seen if "init" in e["path"]]
    assert worlds == [3, 2, 3]


def test_a_broadcast_that_is_broken_off_stops_the_run(
    two: list[Running], tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr("posttrain.engines._phases.broadcast", fail)
    with pytest.raises(AlarmStop, match=r"did not reach all of .*: Connection closed .*start these servers again"):
        complete(remote(two, policy_of(tiny), timeout_seconds=5.0))


def test_what_has_other_names_in_files_is_refused(tiny: Path) -> None:
    with pytest.raises(UserError, match=r"engine\.transfer=gloo is not there for the .*take engine\.transfer=folder"):
        named_weights(replace_body(policy_of(tiny)))


def replace_body(policy: Any) -> Any:
    policy.body = torch.nn.Linear(1, 1)
    return policy
