"""The native engine as a server: what it refuses, failures, callers who leave, loops that end, weights that change."""

import asyncio
import gc
import math
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from posttrain.engines import Sampling
from posttrain.errors import BrokenModel, PosttrainError, RunFailed, UserError
from posttrain.types import Completion
from tests.engines.scripted import (
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

# What is refused


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (range(64), r"64 tokens are too many for role policy: its context is 64 tokens, of which 1 .* at most 63"),
        ([], r"at least one token id, got an array of shape \(0,\)"),
        ([[1, 2]], r"shape \(1, 2\)"),
        ([3, 258], "token id 258 is not in the vocabulary of role policy, which has the ids 0 to 257"),
        ([-1], "token id -1"),
    ],
)
def test_prompts_that_cannot_be_continued_are_refused(tokens: Any, message: str):
    sampler = serve(ScriptedPolicy(bigrams())).bind()
    with pytest.raises(UserError, match=message):
        together(sampler.sample(np.array(list(tokens), np.int64), 1, Sampling()))


def test_a_prompt_that_leaves_one_token_is_continued_by_one():
    (completion,) = together(serve(ScriptedPolicy(bigrams())).bind().sample(np.arange(63), 1, Sampling()))[0]
    assert (len(completion.token_ids), completion.stop_reason) == (1, "length")


def test_other_requests_do_not_notice_a_refused_one():
    sampler = serve(writes({"Q:": "hello"})).bind()

    async def run() -> list[Any]:
        good, bad = sampler.sample(ids(*b"Q:"), 1, Sampling()), sampler.sample(np.arange(99), 1, Sampling())
        return await asyncio.gather(good, bad, return_exceptions=True)

    good, bad = asyncio.run(run())
    assert good[0].text == "hello"
    assert isinstance(bad, UserError)


def test_settings_that_cannot_hold_are_refused():
    sampler = serve(ScriptedPolicy(bigrams())).bind()
    with pytest.raises(UserError, match=r"stop_token_ids has 300, .* ids 0 to 257"):
        together(sampler.sample(ids(1), 1, Sampling(stop_token_ids=(3, 300))))
    with pytest.raises(UserError, match="temperature 0"):
        together(sampler.logp(ids(1, 2), temperature=0.0))
    with pytest.raises(UserError, match=r"65 tokens are too many for role policy: its context is 64 tokens. Use at"):
        together(sampler.logp(np.zeros(65, np.int64)))
    with pytest.raises(ValidationError, match="at least 1 character"):
        Sampling(stop=("",))


def test_logits_that_are_not_finite_stop_the_run():
    sampler = serve(ScriptedPolicy(lambda tokens: torch.full((VOCABULARY,), math.nan))).bind()
    with pytest.raises(BrokenModel, match=r"role policy: .* not finite .* before any update") as found:
        together(sampler.sample(ids(1), 1, Sampling()))
    assert found.value.exit_code == 2, "the model that was given is wrong"


def test_logits_that_training_made_so_fail_the_run():
    policy = ScriptedPolicy(lambda tokens: torch.full((VOCABULARY,), math.nan))
    policy.version = 3
    with pytest.raises(RunFailed, match=r"role policy: .* not finite .* after 3 updates") as found:
        together(serve(policy).bind().sample(ids(1), 1, Sampling()))
    assert found.value.exit_code == 1


class Broken(Exception):
    pass


@pytest.mark.parametrize("error", [Broken("out of memory"), StopIteration()])
def test_a_failure_reaches_all_who_wait_and_the_server_recovers(error: Exception):
    working = bigrams()
    broken = True

    def script(tokens: tuple[int, ...]) -> torch.Tensor:
        if broken and len(tokens) > 3:
            raise error
        return working(tokens)

    policy = ScriptedPolicy(script)
    server = serve(policy, slots=2)

    async def run() -> list[Any]:
        work = [server.bind(i).sample(ids(1, 2), 3, Sampling(max_tokens=4)) for i in range(4)]
        return await asyncio.gather(*work, server.bind().logp(ids(1, 2)), return_exceptions=True)

    *failed, logp = asyncio.run(asyncio.wait_for(run(), 20))
    assert all(isinstance(e, RuntimeError if isinstance(error, StopIteration) else Broken) for e in failed)
    assert len(logp) == 1  # it had its pass before the failure
    broken = False
    assert isinstance(asyncio.run(run())[0][0], Completion)


def test_a_failing_pass_over_sequences_reaches_those_who_wait_for_it():
    policy = ScriptedPolicy(bigrams())

    def evaluate(*_: Any, **__: Any) -> Any:
        raise Broken

    policy.evaluate = evaluate  # type: ignore[method-assign]
    sampler = serve(policy).bind()

    async def run() -> list[Any]:
        work = (sampler.logp(ids(1, 2)), sampler.logp(ids(1, 2)), sampler.sample(ids(1), 1, Sampling()))
        return await asyncio.gather(*work, return_exceptions=True)

    assert [type(e) for e in asyncio.run(asyncio.wait_for(run(), 20))] == [Broken] * 3


def test_an_interrupt_is_not_swallowed_and_leaves_no_caller_waiting():
    interrupted = True

    def script(tokens: tuple[int, ...]) -> torch.Tensor:
        if interrupted:
            raise KeyboardInterrupt
        return torch.zeros(VOCABULARY)

    server = serve(ScriptedPolicy(script))
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(server.bind().sample(ids(1), 2, Sampling(max_tokens=3)))
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(waiting)
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(asyncio.wait_for(waiting, 20))
    interrupted = False
    assert len(loop.run_until_complete(server.bind().sample(ids(1), 2, Sampling(max_tokens=3)))) == 2
    loop.close()


# Callers who leave, loops that end, weights that change


@pytest.mark.parametrize("n", [1, 2, 9])  # in slots, in all slots, partly waiting
def test_a_cancelled_caller_frees_its_slots(n: int):
    policy = ScriptedPolicy(bigrams())
    server = serve(policy, slots=2)
    sampling = Sampling(max_tokens=40, stop_token_ids=())

    async def run() -> list[Completion]:
        leaving = asyncio.create_task(server.bind("leaving").sample(ids(1), n, sampling))
        waiting = asyncio.create_task(server.bind("waiting").sample(ids(2), 9, sampling))
        staying = asyncio.create_task(server.bind("staying").sample(ids(3), 3, Sampling(max_tokens=5)))
        for _ in range(5):
            await asyncio.sleep(0)
        leaving.cancel()
        waiting.cancel()
        return await staying

    done = asyncio.run(run())
    assert server.counters.decode_steps < 20
    assert written(done) == written(
        together(serve(policy).bind("staying").sample(ids(3), 3, Sampling(max_tokens=5)))[0]
    )


def test_the_scores_of_a_cancelled_caller_are_not_computed():
    policy = ScriptedPolicy(bigrams())
    sampler = serve(policy, prefill_tokens=3).bind()

    async def run() -> None:
        first, leaving, last = (asyncio.create_task(sampler.logp(np.arange(n))) for n in (3, 4, 2))
        await asyncio.sleep(0)
        leaving.cancel()
        await first
        await last

    asyncio.run(run())
    assert policy.evaluations == [(3, 1.0), (2, 1.0)]


def test_a_completion_for_a_cancelled_caller_is_dropped():
    server = serve(ScriptedPolicy(bigrams()), slots=4)

    async def run(steps: int) -> list[Completion]:
        leaving = asyncio.create_task(server.bind().sample(ids(1), 1, Sampling(max_tokens=3)))
        scored = asyncio.create_task(server.bind().logp(ids(1, 2)))
        staying = asyncio.create_task(server.bind().sample(ids(2), 1, Sampling(max_tokens=6)))
        for _ in range(steps):
            await asyncio.sleep(0)
        leaving.cancel()
        scored.cancel()
        return await staying

    for steps in range(8):
        assert len(asyncio.run(run(steps))) == 1


def test_one_server_serves_successive_loops():
    policy = ScriptedPolicy(bigrams())
    server, sampling = serve(policy, slots=2), Sampling(max_tokens=6)
    sampler = server.bind("s")
    parts = [together(sampler.sample(ids(1), 2, sampling), sampler.sample(ids(2), 1, sampling)) for _ in range(3)]
    again = serve(policy, slots=2).bind("s")

    async def one_loop() -> list[Any]:
        return [
            await asyncio.gather(again.sample(ids(1), 2, sampling), again.sample(ids(2), 1, sampling)) for _ in range(3)
        ]

    flat = [written(c) for part in parts for c in part]
    assert flat == [written(c) for part in asyncio.run(one_loop()) for c in part]


def test_two_open_loops_may_take_turns():
    server = serve(ScriptedPolicy(bigrams()), slots=2)
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    for loop in (first, second, first, first, second):
        assert len(loop.run_until_complete(server.bind().sample(ids(1), 3, Sampling(max_tokens=4)))) == 3
    first.close()
    second.close()


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_was_left_with_work_does_not_disturb_the_next():
    policy = ScriptedPolicy(bigrams())
    server = serve(policy, slots=2)

    async def leave() -> None:
        task = asyncio.create_task(server.bind().sample(ids(1), 9, Sampling(max_tokens=30)))
        for _ in range(4):
            await asyncio.sleep(0)
        assert not task.done()

    asyncio.run(leave())  # cancels what is left
    assert len(complete(server, "Q:", Sampling(max_tokens=2))) == 1

    loop = asyncio.new_event_loop()
    orphan: Any = loop.create_task(server.bind().sample(ids(1), 9, Sampling(max_tokens=30)))
    loop.run_until_complete(asyncio.sleep(0))  # its scheduler has started
    with pytest.raises(PosttrainError, match="another event loop"):
        complete(server, "Q:", Sampling(max_tokens=2))
    loop.close()  # without cancelling
    task, orphan = orphan, None

    async def collect_the_orphan() -> list[Completion]:
        nonlocal task
        writing = asyncio.create_task(server.bind("test").sample(ids(1), 2, Sampling(max_tokens=9)))
        await asyncio.sleep(0)
        task = None
        gc.collect()
        return await writing

    alone = together(serve(policy).bind("test").sample(ids(1), 2, Sampling(max_tokens=9)))[0]
    assert written(asyncio.run(collect_the_orphan())) == written(alone)


def test_memory_is_given_back_when_nothing_waits():
    server = serve(ScriptedPolicy(bigrams()))
    complete(server, "Q:", Sampling(max_tokens=2))
    assert server._scheduler is not None and server._scheduler._slots is None


def test_an_update_is_seen_by_the_next_completion():
    policy = ScriptedPolicy(lambda tokens: bigrams(policy.version)(tokens))
    server = serve(policy)
    before = complete(server, "Q:", Sampling(max_tokens=9))[0]
    policy.version = 1
    after = complete(server, "Q:", Sampling(max_tokens=9))[0]
    assert (before.version, after.version) == (0, 1)
    assert after.token_ids.tolist() != before.token_ids.tolist()
    fresh = ScriptedPolicy(bigrams(1))
    assert complete(serve(fresh), "Q:", Sampling(max_tokens=9))[0].token_ids.tolist() == after.token_ids.tolist()


def test_an_update_between_two_awaits_of_one_loop_is_seen():
    policy = ScriptedPolicy(bigrams())
    sampler = serve(policy).bind()

    async def run() -> list[int]:
        versions = []
        for _ in range(3):
            completions = await sampler.sample(ids(1), 2, Sampling(max_tokens=3))
            versions += [c.version for c in completions]
            policy.version += 1
        return versions

    assert asyncio.run(run()) == [0, 0, 1, 1, 2, 2]


def test_an_update_under_completions_in_progress_is_refused():
    policy = ScriptedPolicy(bigrams())
    server = serve(policy)

    async def run() -> None:
        writing = asyncio.create_task(server.bind().sample(ids(1), 1, Sampling(max_tokens=30)))
        for _ in range(4):
            await asyncio.sleep(0)
        policy.version = 3
        await writing

    with pytest.raises(RunFailed, match="from version 0 to 3 while completions were being sampled"):
        asyncio.run(run())
    assert complete(server, "Q:", Sampling(max_tokens=2))[0].version == 3


def test_asking_for_none_gives_none():
    assert together(serve(ScriptedPolicy(bigrams())).bind().sample(ids(1), 0, Sampling())) == [[]]


def test_gradients_are_not_recorded():
    recorded = []

    def script(tokens: tuple[int, ...]) -> torch.Tensor:
        recorded.append(torch.is_grad_enabled())
        return torch.zeros(VOCABULARY)

    sampler = serve(ScriptedPolicy(script)).bind()
    together(sampler.sample(ids(1), 1, Sampling(max_tokens=2)), sampler.logp(ids(1, 2)))
    assert recorded and not any(recorded)
