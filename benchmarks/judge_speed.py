"""How fast judges are, beside what the same machine does without them at the same time.

    python -m benchmarks.judge_speed MODEL_FOLDER [--rounds 5] [--output FILE]

    pairs     both orders of prompts of 100 tokens, letters of `preference_model`, beside bare passes over these
              prompts, and beside the same prompts one by one: together, what prompts share is computed once
    texts     scores of a reward head for texts of 50 tokens, beside bare passes over these texts
    heads     64 outputs of a reward head, beside one: at most 1.1 times the time
    cached    verdicts from a store, each looked up in batches as `posttrain judge --store` does, beside bare look-ups
    disk      bytes of 100,000 verdicts, and of memory of the process that reads them

Rounds of both sides take turns, and the ratio of each round is of its own two times, so that other work on the machine
slows both. The load is stated: absolute numbers are lower bounds on a machine that is not idle.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from posttrain.audit.judges import Shown
from posttrain.audit.judges.planted import Planted
from posttrain.audit.judges.rewarded import RewardJudge
from posttrain.cli._judge import Kept
from posttrain.components.rewards.preference_model import QUESTION, PreferenceModel
from posttrain.engines._prefixes import packed_once
from posttrain.engines.native import Native
from posttrain.models import Model
from posttrain.policies import Packed
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.policies.loading import load_language_model
from posttrain.runs.verdict_store import VerdictStore
from posttrain.types import Message, Task

PAIRS, PAIR_TOKENS, TEXTS, TEXT_TOKENS, HEADS, VERDICTS = 8, 100, 32, 50, 64, 100_000
Side = Callable[[], object]


def timed(work: Side) -> float:
    """Seconds."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def compared(rounds: int, one: Side, other: Side) -> tuple[float, float]:
    """The best time of the first side, and the median ratio of both sides' times in a round."""
    one(), other()
    found = []
    for number in range(rounds):
        sides = (one, other) if number % 2 else (other, one)
        times = {side: timed(side) for side in sides}
        found.append((times[one], times[one] / times[other]))
    return min(t for t, _ in found), statistics.median(r for _, r in found)


def loaded(folder: str, **settings: Any) -> LanguageModelPolicy:
    """The model in bfloat16."""
    return load_language_model("judge", Model(source=folder, dtype="bfloat16", **settings), {}, torch.device("cpu"))


def passes(policy: LanguageModelPolicy, rows: Sequence[np.ndarray]) -> Side:
    """One bare forward pass over each row, without logits."""
    packed = [Packed(token_ids_L=torch.from_numpy(row), starts=(0, len(row))) for row in rows]

    def work() -> None:
        with torch.no_grad():
            for one in packed:
                policy.body.hidden(one)

    return work


def pairs(folder: str, rounds: int) -> dict[str, float]:
    """Pairs in both orders."""
    policy = loaded(folder)
    server = Native().serve(policy, 0)
    judge = RewardJudge(
        "letters", PreferenceModel(), lambda key: {"judge": server.bind("judge", key)}, frozenset({"judge"})
    )

    def ids(context: str, first: str, second: str) -> np.ndarray:
        text = QUESTION.format(context=context, first=first, second=second)
        return server.bind("x").encode((Message(role="user", content=text),))

    first, second = "It is a number.", "It is a word."
    context = "a"
    while len(ids(f"{context} b", first, second)) <= PAIR_TOKENS:
        context += " b"
    shown = [
        Shown(task=Task(key=str(n), prompt=f"{n} {context[2:]}"), first=first, second=second) for n in range(PAIRS)
    ]
    # Scores of a group are of both orders.
    rows = [ids(str(one.task.prompt), *both) for one in shown for both in ((first, second), (second, first))]
    best, ratio = compared(rounds, lambda: judge.verdicts(shown), passes(policy, rows))
    packed, _ = packed_once(rows, torch.device("cpu"), shares=policy.body.shares_prompts)
    sampler = server.bind("x")
    letters = [int(sampler.encode(letter)[-1]) for letter in "AB"]

    async def together() -> None:
        await asyncio.gather(*(sampler.next_logp(row, letters) for row in rows))

    async def alone() -> None:
        for row in rows:
            await sampler.next_logp(row, letters)

    _, times = compared(rounds, lambda: asyncio.run(together()), lambda: asyncio.run(alone()))
    return {
        "tokens_of_a_prompt": statistics.mean(map(len, rows)),
        "tokens_computed_of_a_prompt": len(packed.token_ids_L) / len(rows),
        "pairs_a_second": PAIRS / best,
        "times_bare_passes": ratio,
        "times_prompts_one_by_one": times,
    }


def texts(folder: str, rounds: int) -> dict[str, float]:
    """Texts by a reward head, and by one of several outputs."""
    rng = np.random.default_rng(0)
    found = {}
    servers = []
    for outputs in (1, HEADS):
        policy = loaded(folder, head="reward", outputs=outputs)
        servers.append((policy, Native().serve(policy, 0).bind("x")))
    policy, one = servers[0]
    rows = [rng.integers(10, policy.body.vocabulary_size - 10, TEXT_TOKENS) for _ in range(TEXTS)]

    def scores(sampler: Any) -> Side:
        async def all_of_them() -> None:
            await asyncio.gather(*(sampler.scores(row) for row in rows))

        return lambda: asyncio.run(all_of_them())

    best, ratio = compared(rounds, scores(one), passes(policy, rows))
    found |= {"texts_a_second": TEXTS / best, "times_bare_passes": ratio}
    _, found["times_one_head"] = compared(rounds, scores(servers[1][1]), scores(one))
    return found


def cached(rounds: int) -> dict[str, float]:
    """Verdicts from a store."""
    judge = Planted("first")
    shown = [
        Shown(task=Task(key=str(n), prompt=f"What is {n} plus {n + 1}?"), first=str(2 * n + 1), second=str(2 * n))
        for n in range(VERDICTS)
    ]
    with tempfile.TemporaryDirectory() as folder:
        store = VerdictStore(Path(folder) / "verdicts.db")
        kept = Kept(judge, store, ["planted"])
        kept.verdicts(shown)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        keys = [kept._key(one) for one in shown]
        again = Kept(judge, store, ["planted"])
        best, ratio = compared(rounds, lambda: again.verdicts(shown), lambda: store.find(keys))
        assert not again.asked, "all of them are there"
        store.close()
    with open("/proc/self/status", encoding="utf-8") as status:
        peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))
    return {
        "verdicts_a_second": VERDICTS / best,
        "times_bare_look_ups": ratio,
        "bytes_on_disk": size,
        "bytes_of_memory": peak,
    }


def main() -> None:
    """Print the table, and write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    loads = [os.getloadavg()[0]]
    found: dict[str, Any] = {"cached": cached(given.rounds)}
    found |= {"pairs": pairs(given.folder, given.rounds), "texts": texts(given.folder, given.rounds)}
    loads.append(os.getloadavg()[0])
    found["machine"] = {"load_before": loads[0], "load_after": loads[1], "cores": os.cpu_count()}
    print(json.dumps(found, indent=1))
    if given.output is not None:
        given.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
