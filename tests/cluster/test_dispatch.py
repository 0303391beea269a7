"""Calls of groups: every mode, both paddings, results that are handed on unopened."""

import itertools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.cluster._gang import join
from posttrain.cluster.dispatch import Group, Padding, split
from posttrain.cluster.planning.shards import Cuts
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.signals import LOGP
from posttrain.training.learner import evaluate_examples
from posttrain.training.packing import Example


class Worker:
    """Does what its methods are; in a thread, where a cluster has a process."""

    def __init__(self, name: str, methods: dict[str, Callable[[Any], Any]]) -> None:
        self.name, self._methods, self.seen = name, methods, list[Any]()
        self._pool = ThreadPoolExecutor(1)

    def call(self, method: str, argument: Any) -> Future[Any]:
        def work() -> Any:
            given = argument.result() if isinstance(argument, Future) else argument
            self.seen.append(given)
            return self._methods[method](given)

        return self._pool.submit(work)


def group(count: int, copies: int = 1, **methods: Callable[[Any], Any]) -> Group:
    members = [Worker(str(i), methods) for i in range(count)]
    return Group(members=members, wait=lambda parts: [part.result() for part in parts], copies=copies)


def seen(group: Group) -> list[Any]:
    return [member.seen for member in group.members]  # type: ignore[attr-defined]


def double(items: list[int]) -> list[int]:
    return [2 * item for item in items]


def test_modes() -> None:
    one = group(3, same=lambda value: value)
    assert one.call("same", 7, "rank_zero") == 7 and seen(one) == [[7], [], []]
    assert group(3, same=lambda value: value).call("same", 7, "one_to_all") == [7, 7, 7]
    assert group(3, same=lambda value: value).call("same", [1, 2, 3], "all_to_all") == [1, 2, 3]
    with pytest.raises(UserError, match="one argument for each process: got 2, and there are 3"):
        group(3, same=lambda value: value).call("same", [1, 2], "all_to_all")


def test_a_mesh_gives_a_part_to_each_of_its_processes_and_takes_one_result() -> None:
    mesh = group(4, copies=2, double=double)
    assert mesh.call("double", [1, 2, 3, 4], "mesh") == [2, 4, 6, 8]
    assert seen(mesh) == [[[1, 2]], [[1, 2]], [[3, 4]], [[3, 4]]]


def test_paddings_worked_by_hand() -> None:
    seven = list("abcdefg")
    assert split(seven, 3, "last") == [list("abc"), list("def"), list("ggg")]
    assert split(seven, 3, "cycle") == [list("abc"), list("def"), list("gab")]
    assert split(["a"], 3, "cycle") == [["a"], ["a"], ["a"]]
    with pytest.raises(UserError, match="7 items cannot be dealt to 3 processes"):
        split(seven, 3, "none")
    assert split([], 3, "none") == [[], [], []]


@pytest.mark.parametrize("padding", ["last", "cycle"])
def test_surplus_results_are_cut_off(padding: Padding) -> None:
    assert group(3, double=double).call("double", [1, 2, 3, 4], "split", padding) == [2, 4, 6, 8]


def test_a_result_is_handed_on_unopened() -> None:
    """The second group gets the futures of the first; the surplus is cut at the end, once."""
    first, second = group(2, double=double), group(2, double=double)
    later = first.begin("double", [1, 2, 3], "split", "last")
    assert second.call("double", later, "split") == [4, 8, 12]
    assert seen(second) == [[[2, 4]], [[6, 6]]]
    with pytest.raises(UserError, match="as many parts as the group: got 2, and there are 3"):
        group(3, double=double).call("double", later, "split")


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("padding", ["last", "cycle"])
def test_scores_of_seven_tasks_are_those_of_one_process_bit_for_bit(
    count: int, padding: Padding, tmp_path: Path
) -> None:
    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=64)

    def scorer() -> Callable[[list[Example]], list[bytes]]:
        policy = load_policy("reference", Model(source=str(folder)), {}, torch.device("cpu"))

        def score(examples: list[Example]) -> list[bytes]:
            found = [evaluate_examples(policy, [e], frozenset({LOGP}), max_tokens=64)[0][LOGP] for e in examples]
            return [values.tobytes() for values in found]

        return score

    rng = np.random.default_rng(0)
    examples = [
        Example(
            token_ids=rng.integers(0, 256, 6 + i),
            positions=np.arange(2, 6 + i),
            columns={},
            turn_T=np.zeros(4 + i, int),
        )
        for i in range(7)
    ]
    alone = scorer()(examples)
    score = scorer()
    assert group(count, score=score).call("score", examples, "split", padding) == alone


def test_a_critic_is_another_call_and_no_other_worker() -> None:
    """GRPO becomes PPO in the caller: one more call of the same group, whose class has no edit."""
    methods = {
        "sample": double,
        "reward": lambda items: [i % 3 for i in items],
        "values": lambda items: [0.5 for _ in items],
    }
    own = group(2, **methods)
    rollouts = own.begin("sample", [1, 2, 3, 4], "split")
    grpo = own.call("reward", rollouts, "split")
    assert grpo == [2, 1, 0, 2]
    values = own.call("values", rollouts, "split")
    assert [r - v for r, v in zip(grpo, values, strict=True)] == [1.5, 0.5, -0.5, 1.5]


# Shards


CUTS = [
    Cuts(pipeline=p, tensor=t, data=d, generation_pipeline=a, generation_tensor=b)
    for p, t, d, a, b in itertools.product((1, 2, 4), (1, 2, 4), (1, 2), (1, 2, 4), (1, 2, 4))
    if p % a == 0 and t % b == 0
]


@pytest.mark.parametrize("cuts", CUTS, ids=str)
def test_bytes_a_rank_are_those_that_are_counted(cuts: Cuts) -> None:
    """The rule's formula against cells: each rank holds its own, and receives the rest of its shard, none twice."""
    cells = cuts.pipeline * cuts.tensor
    for rank in cuts.ranks:
        shard = cuts.cells(cuts.shard(rank))
        assert rank in shard
        assert Fraction(len(cuts.senders(rank)), cells) == cuts.received <= cuts.received_in_replica
        assert {rank, *cuts.senders(rank)} == shard
    held = [cuts.shard(rank) for rank in cuts.ranks]
    assert cuts.data * min(map(held.count, set(held))) == cuts.replicas


def test_one_by_four_to_one_by_two_worked_by_hand() -> None:
    """Quarters to halves: each rank gets one more quarter; gathering the model would bring three."""
    cuts = Cuts(pipeline=1, tensor=4, generation_tensor=2)
    assert cuts.received == Fraction(1, 4)
    assert cuts.received_in_replica == Fraction(3, 4)
    assert [cuts.shard((0, j)) for j in range(4)] == [(0, 0), (0, 0), (0, 1), (0, 1)]
    assert cuts.senders((0, 2)) == {(0, 3): (0, 3)}
    assert [len(cuts.consecutive((0, j))) for j in range(4)] == [0, 1, 1, 0]  # ranks 1 and 2 hold parts twice


def test_layouts_that_do_not_divide_are_refused() -> None:
    with pytest.raises(UserError, match="tensor: 3 ways for generation do not divide the 4 ways of training"):
        Cuts(pipeline=1, tensor=4, generation_tensor=3)


@pytest.mark.parametrize("parts", [(4, 2), (4, 1), (2, 1)])
def test_gathered_weights_are_those_of_one_process_bit_for_bit(parts: tuple[int, int], tmp_path: Path) -> None:
    """Two matrices cut by columns over ranks that exchange cells by the rule; bytes are those of the formula."""
    trained, generated = parts
    cuts = Cuts(pipeline=1, tensor=trained, generation_tensor=generated)
    whole = [torch.randn(8, 16, generator=torch.Generator().manual_seed(i)) for i in range(2)]
    own = {(0, j): [w.chunk(trained, 1)[j] for w in whole] for j in range(trained)}
    for rank in cuts.ranks:
        received = {cell: own[sender] for cell, sender in cuts.senders(rank).items()}
        count = sum(piece.numel() for pieces in received.values() for piece in pieces)
        assert count == cuts.received * sum(w.numel() for w in whole)
        cells = sorted(cuts.cells(cuts.shard(rank)))
        have = {rank: own[rank], **received}
        for i, matrix in enumerate(whole):
            gathered = torch.cat([have[cell][i] for cell in cells], 1)
            assert torch.equal(gathered, matrix.chunk(generated, 1)[cuts.shard(rank)[1]])


def test_four_processes_gather_their_halves_over_gloo(tmp_path: Path) -> None:
    """As `test_one_by_four_to_one_by_two_worked_by_hand`, with an all-gather in each group that shares a shard."""
    cuts = Cuts(pipeline=1, tensor=4, generation_tensor=2)
    whole = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))

    def member(rank: int) -> Callable[[], torch.Tensor]:
        def run() -> torch.Tensor:
            cells = sorted(cuts.cells(cuts.shard((0, rank))))
            place = tmp_path / f"shard-{cuts.shard((0, rank))[1]}"
            gloo = join(str(place), cells.index((0, rank)), len(cells), 30.0)
            pieces = [torch.empty(6, 2) for _ in cells]
            gloo.allgather([pieces], [whole.chunk(4, 1)[rank].contiguous()]).wait()
            return torch.cat(pieces, 1)

        return run

    with ThreadPoolExecutor(4) as pool:
        found = [future.result() for future in [pool.submit(member(rank)) for rank in range(4)]]
    for rank, half in enumerate(found):
        assert torch.equal(half, whole.chunk(2, 1)[rank // 2])
