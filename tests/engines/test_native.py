"""The native engine on scripted policies: what is written, the law of the draws, the schedule."""

import asyncio
import gc
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from posttrain.engines import Counters, Engine, Sampling
from posttrain.engines._continuous import ContinuousServer
from posttrain.engines._passes import passes
from posttrain.engines._random import key_of, uniform
from posttrain.engines._scheduler import Scheduler
from posttrain.engines.native import Native
from tests.engines.scripted import (
    END,
    VOCABULARY,
    ScriptedPolicy,
    bigrams,
    complete,
    ids,
    serve,
    together,
    writes,
    written,
)


def test_native_is_a_kind_that_needs_no_torch_to_be_named():
    assert Engine.find("native") is Native
    with pytest.raises(ValidationError, match="greater than 0"):
        Native(slots=0)


# What is written


def test_a_completion_ends_at_an_end_token_which_is_kept_in_the_ids_only():
    (completion,) = complete(serve(writes({"Q:": "hello"})), "Q:", Sampling())
    assert completion.token_ids.tolist() == [*b"hello", END]
    assert (completion.text, completion.stop_reason, completion.version) == ("hello", "stop", 0)
    assert completion.logp.dtype == np.float32 and completion.token_ids.dtype == np.int64
    assert completion.logp.tolist() == [0.0] * 6


def test_an_interrupt_is_raised_and_not_logged(monkeypatch, caplog):
    def interrupt(scheduler):
        raise KeyboardInterrupt

    monkeypatch.setattr(Scheduler, "_advance", interrupt)
    with pytest.raises(KeyboardInterrupt):
        complete(serve(writes({"Q:": "hello"})), "Q:", Sampling())
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_a_completion_is_cut_at_max_tokens():
    (completion,) = complete(serve(writes({"Q:": "hello"})), "Q:", Sampling(max_tokens=3))
    assert (completion.token_ids.tolist(), completion.text) == ([*b"hel"], "hel")
    assert completion.stop_reason == "length"


def test_an_end_token_as_the_last_allowed_token_is_a_stop():
    (completion,) = complete(serve(writes({"Q:": "hello"})), "Q:", Sampling(max_tokens=6))
    assert completion.stop_reason == "stop"


def test_a_completion_is_cut_by_the_context():
    (completion,) = complete(serve(writes({"Q:": "hello"}, context=6)), "Q:", Sampling())
    assert (completion.text, completion.stop_reason) == ("hell", "length")


def test_stop_token_ids_are_added_to_the_models_own():
    sampling = Sampling(stop_token_ids=(ord("o"), ord("l")))
    (completion,) = complete(serve(writes({"Q:": "hello"})), "Q:", sampling)
    assert (completion.token_ids.tolist(), completion.text, completion.stop_reason) == ([*b"hel"], "he", "stop")


@pytest.mark.parametrize("slots", [1, 2])
def test_stop_tokens_of_one_request_are_not_those_of_another(slots: int):
    server = serve(writes({"Q:": "hello", "R:": "hello"}), slots=slots)
    sampler = server.bind()
    short, long = together(
        sampler.sample(ids(*b"Q:"), 1, Sampling(stop_token_ids=(ord("l"),))),
        sampler.sample(ids(*b"R:"), 1, Sampling()),
    )
    assert (short[0].text, long[0].text) == ("he", "hello")


def test_stop_strings_are_kept_in_the_ids_and_cut_from_the_text():
    server = serve(writes({"Q:": "déjà vu. The end", "R:": "no stop"}))
    (completion,) = complete(server, "Q:", Sampling(stop=("à v", "zz")))
    assert completion.token_ids.tolist() == [*"déjà v".encode()]
    assert (completion.text, completion.stop_reason) == ("déj", "stop")
    (completion,) = complete(server, "R:", Sampling(stop=("à v", "zz")))
    assert (completion.text, completion.stop_reason) == ("no stop", "stop")
    (completion,) = complete(server, "Q:", Sampling(stop=("à v",), max_tokens=len("déjà v".encode())))
    assert completion.stop_reason == "stop"
    (completion,) = complete(server, "Q:", Sampling(stop=("à v",), max_tokens=len("déjà".encode())))
    assert (completion.text, completion.stop_reason) == ("déjà", "length")


def test_a_stop_token_counts_before_a_stop_string_that_it_completes():
    sampling = Sampling(stop=("el",), stop_token_ids=(ord("l"),))
    (completion,) = complete(serve(writes({"Q:": "hello"})), "Q:", sampling)
    assert (completion.token_ids.tolist(), completion.text) == ([*b"hel"], "he")


def test_a_slot_forgets_the_stop_strings_of_the_one_before():
    server = serve(writes({"Q:": "a.b", "R:": "a.b"}), slots=1)
    sampler = server.bind()
    first, second = together(
        sampler.sample(ids(*b"Q:"), 1, Sampling(stop=(".",))), sampler.sample(ids(*b"R:"), 1, Sampling())
    )
    assert (first[0].text, second[0].text) == ("a", "a.b")


def test_greedy_takes_the_likeliest_and_records_it_at_temperature_one():
    table = torch.tensor([1.0, 2.0, 3.0, 0.0])
    server = serve(ScriptedPolicy(lambda tokens: table, vocabulary_size=4))
    (completion,) = together(server.bind().sample(ids(0), 1, Sampling(temperature=0.0, max_tokens=3)))[0]
    assert completion.token_ids.tolist() == [2, 2, 2]
    assert completion.logp == pytest.approx(np.full(3, 3 - math.log(sum(map(math.exp, (1, 2, 3, 0))))), abs=1e-6)


def test_the_recorded_log_probability_is_that_of_the_untruncated_distribution():
    script = bigrams()
    server = serve(ScriptedPolicy(script))
    sampling = Sampling(temperature=0.7, top_k=5, top_p=0.8, min_p=0.1, max_tokens=20)
    for completion in complete(server, "Q:", sampling, n=4):
        tokens = tuple(b"Q:")
        for token, logp in zip(completion.token_ids.tolist(), completion.logp, strict=True):
            logits = script(tokens).double() / 0.7
            assert token in logits.topk(5).indices
            assert logp == pytest.approx(logits.log_softmax(0)[token].item(), abs=1e-6)
            tokens += (token,)


# The law of the draws


def test_the_nth_completion_is_a_function_of_seed_key_and_n():
    p = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    server = serve(ScriptedPolicy(lambda tokens: p.log(), vocabulary_size=4), seed=7)
    sampler = server.bind("rl", 3, "task")
    first = together(sampler.sample(ids(0), 2, Sampling(max_tokens=5)))[0]
    second = together(sampler.sample(ids(0), 3, Sampling(max_tokens=5)))[0]
    for n, completion in enumerate(first + second):
        key = np.full(5, key_of(7, "rl", 3, "task", n), np.uint64)
        draws = uniform(key, np.arange(5, dtype=np.uint64))
        assert completion.token_ids.tolist() == np.searchsorted(p.cumsum(0).numpy(), draws, side="right").tolist()


def test_keys_and_seeds_give_other_completions_and_the_same_give_the_same():
    policy, sampling = ScriptedPolicy(bigrams()), Sampling(max_tokens=12)

    def write(seed: int, *key: int | str) -> tuple[Any, ...]:
        return tuple(together(serve(policy, seed).bind(*key).sample(ids(1, 2), 1, sampling))[0][0].token_ids)

    assert write(0, "a") == write(0, "a")
    assert len({write(0, "a"), write(1, "a"), write(0, "b"), write(0, "a", 0)}) == 4


@pytest.mark.slow
def test_a_completion_does_not_depend_on_batch_slots_or_arrival():
    policy = ScriptedPolicy(bigrams())
    requests = [
        (ids(*range(1 + i % 7)), Sampling(max_tokens=1 + i * 5 % 23, temperature=(i % 3) / 2, top_k=i % 4), 1 + i % 3)
        for i in range(40)
    ]

    async def run(server: ContinuousServer, order: Sequence[int], pause: int) -> dict[int, Any]:
        async def one(i: int) -> list[tuple[Any, ...]]:
            for _ in range(pause * i):
                await asyncio.sleep(0)
            prompt, sampling, n = requests[i]
            return written(await server.bind("t", i).sample(prompt, n, sampling))

        return dict(zip(order, await asyncio.gather(*map(one, order)), strict=True))

    alone = {}
    for i in range(40):
        alone |= asyncio.run(run(serve(policy, slots=1, prefill_tokens=2), [i], 0))
    for slots, order, pause in [(64, range(40), 0), (5, range(39, -1, -1), 0), (3, range(40), 2), (1, range(40), 1)]:
        assert asyncio.run(run(serve(policy, slots=slots), order, pause)) == alone


def test_sampled_tokens_follow_their_probabilities():
    logits, n = torch.tensor([0.0, 1.0, 2.0, -1.0]), 4000
    server = serve(ScriptedPolicy(lambda tokens: logits, vocabulary_size=4), slots=256)
    completions = together(server.bind().sample(ids(0), n, Sampling(max_tokens=2, temperature=1.5)))[0]
    expected = (logits.double() / 1.5).softmax(0).numpy()
    pairs = Counter(tuple(c.token_ids.tolist()) for c in completions)
    wanted = np.outer(expected, expected) * n
    counts = np.array([[pairs[a, b] for b in range(4)] for a in range(4)])
    assert ((counts - wanted) ** 2 / wanted).sum() < 50  # 15 degrees of freedom: p < 2e-5


# The schedule


def test_a_prompt_is_computed_once_for_all_its_completions():
    policy = ScriptedPolicy(bigrams())
    server = serve(policy, slots=8)
    together(server.bind().sample(ids(*range(10)), 8, Sampling(max_tokens=4)))
    assert policy.body.passes == [[10], [1] * 8, [1] * 8, [1] * 8]
    assert server.counters == Counters(
        prompt_tokens=10, sampled_tokens=32, completions=8, decode_steps=4, slot_steps=32
    )
    assert server.counters.occupancy == 1.0


def test_more_completions_than_slots_still_compute_the_prompt_once():
    policy = ScriptedPolicy(bigrams())
    server = serve(policy, slots=3)
    completions = together(server.bind().sample(ids(*range(10)), 8, Sampling(max_tokens=4)))[0]
    assert written(completions) == written(
        together(serve(policy, slots=8).bind().sample(ids(*range(10)), 8, Sampling(max_tokens=4)))[0]
    )
    assert sum(map(sum, policy.body.passes[:10])) == 10 + 8 * 3
    assert server.counters.prompt_tokens == 10


def test_a_finished_sequence_leaves_its_slot_at_once():
    lengths = [20, 1, 1, 1, 1, 20, 1, 1, 1, 1, 15, 5, 5, 5, 5]
    table = torch.zeros(VOCABULARY)
    table[END] = -1000.0
    server = serve(ScriptedPolicy(lambda tokens: table), slots=3)
    sampler = server.bind()
    done = together(*(sampler.sample(ids(1), 1, Sampling(max_tokens=n)) for n in lengths))
    assert [len(c.token_ids) for (c,) in done] == lengths
    # First come, first served: each takes the slot that is free first.
    free = [0, 0, 0]
    for n in lengths:
        free[free.index(min(free))] += n
    assert server.counters.decode_steps == max(free) == 30
    assert sum(max(lengths[i : i + 3]) for i in range(0, len(lengths), 3)) == 61  # what fixed batches would take
    assert server.counters.sampled_tokens == sum(lengths)
    assert server.counters.occupancy == pytest.approx(sum(lengths) / (30 * 3))


def test_callers_who_got_an_answer_ask_for_more_before_the_next_step():
    server = serve(ScriptedPolicy(bigrams()), slots=2)

    async def turns(key: str) -> None:
        sampler = server.bind(key)
        for _ in range(5):
            await sampler.sample(ids(1), 1, Sampling(max_tokens=1))

    together(turns("a"), turns("b"))
    assert server.counters.decode_steps == 5
    assert server.counters.occupancy == 1.0


def test_the_schedule_is_a_function_of_the_order_of_requests():
    def run() -> list[list[int]]:
        policy = ScriptedPolicy(bigrams())
        sampler = serve(policy, slots=4, prefill_tokens=16).bind()
        together(*(sampler.sample(ids(*range(1 + i % 9)), 1 + i % 5, Sampling(max_tokens=9)) for i in range(12)))
        return policy.body.passes

    assert run() == run()


def test_passes_over_prompts_hold_at_most_the_limit():
    prompts = [(slot, np.arange(n)) for slot, n in enumerate([3, 3, 3, 10, 1, 4])]
    sizes = [[(slot, len(piece)) for slot, piece in batch] for batch in passes(prompts, 4)]
    assert sizes == [[(0, 3)], [(1, 3)], [(2, 3)], [(3, 4)], [(3, 4)], [(3, 2), (4, 1)], [(5, 4)]]
    few = [[(slot, len(piece)) for slot, piece in batch] for batch in passes(prompts, 4, 3)]
    assert few == [[(0, 3)], [(1, 3)], [(2, 3)], [(3, 4)], [(3, 4)], [(3, 2), (4, 1)], [(5, 4)]]
    assert list(map(len, passes(prompts, 8, 3))) == [1, 1, 1, 1, 2, 1]
    rebuilt = np.concatenate([piece for batch in passes(prompts, 4) for slot, piece in batch if slot == 3])
    assert rebuilt.tolist() == list(range(10))


def test_a_thousand_requests_share_thirty_two_slots():
    policy = ScriptedPolicy(bigrams(vocabulary_size=300), vocabulary_size=300)
    server = serve(policy, slots=32)
    lengths = [1 + i * 7 % 13 for i in range(1000)]
    done = together(*(server.bind(i).sample(ids(i % 256), 1, Sampling(max_tokens=n)) for i, n in enumerate(lengths)))
    assert all(len(c.token_ids) == n or c.stop_reason == "stop" for (c,), n in zip(done, lengths, strict=True))
    assert server.counters.completions == 1000
    assert server.counters.decode_steps <= server.counters.sampled_tokens / 32 + max(lengths)
    assert max(map(len, policy.body.passes)) <= 32


def test_counters_can_be_subtracted():
    server = serve(ScriptedPolicy(bigrams()), slots=4)
    together(server.bind().sample(ids(1), 1, Sampling(max_tokens=2, stop_token_ids=())))
    before = server.counters
    together(server.bind().sample(ids(1, 2, 3), 2, Sampling(max_tokens=1)))
    done = server.counters - before
    assert done == Counters(prompt_tokens=3, sampled_tokens=2, completions=2, decode_steps=1, slot_steps=4)
    assert done.occupancy == 0.5
    assert math.isnan(Counters().occupancy)


# Log-probabilities


def test_logp_evaluates_sequences_in_passes_of_one_temperature():
    script, policy = bigrams(), ScriptedPolicy(bigrams())
    server = serve(policy, prefill_tokens=10)
    sampler = server.bind()
    wanted = [(ids(*range(n)), t) for n, t in [(4, 1.0), (5, 1.0), (3, 1.0), (3, 0.5), (20, 1.0), (2, 1.0)]]
    got = together(*(sampler.logp(sequence, temperature=t) for sequence, t in wanted))
    for (sequence, t), logp in zip(wanted, got, strict=True):
        tokens = sequence.tolist()
        exact = [(script(tuple(tokens[:i])) / t).log_softmax(0)[tokens[i]].item() for i in range(1, len(tokens))]
        assert logp.dtype == np.float32
        assert logp == pytest.approx(np.array(exact), abs=1e-6)
    assert policy.evaluations == [(9, 1.0), (3, 1.0), (3, 0.5), (20, 1.0), (2, 1.0)]
    assert server.counters.scored_tokens == sum(len(s) - 1 for s, _ in wanted)


def test_logp_of_a_single_token_is_empty_and_equals_what_was_sampled_otherwise():
    server = serve(ScriptedPolicy(bigrams()))
    sampler = server.bind()
    assert together(sampler.logp(ids(5)))[0].shape == (0,)
    (completion,) = together(sampler.sample(ids(1, 2), 1, Sampling(temperature=0.5, max_tokens=9)))[0]
    logp = together(sampler.logp(np.concatenate([ids(1, 2), completion.token_ids]), temperature=0.5))[0]
    assert logp[1:] == pytest.approx(completion.logp, abs=1e-6)


def test_uniform_numbers_are_a_function_of_seed_key_and_n():
    server = serve(ScriptedPolicy(bigrams()))

    def drawn(*key: int | str) -> list[float]:
        sampler = server.bind(*key)
        return [sampler.uniform() for _ in range(200)]

    first = drawn("a", 1)
    assert first == drawn("a", 1)
    assert first != drawn("a", 2)
    assert len(set(first)) == 200 and all(0 <= x < 1 for x in first)
    assert np.mean(first) == pytest.approx(0.5, abs=0.1)
    asked = server.bind("a", 1)
    complete(server, "x", Sampling(max_tokens=2))
    assert asked.uniform() == first[0], "completions that were asked for make no difference"
