"""What conjecturer and prover learn from, by hand, and one round of the whole."""

from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.rewards.derivation import Derivation
from posttrain.datasets.conjectures import (
    FREE,
    Conjecture,
    Seed,
    barely_proved,
    matched,
    proof_weight,
    seeds_of,
    without_trivial,
)
from posttrain.errors import UserError
from posttrain.grading.derivations import fault
from posttrain.methods.multi_agent.stp import stp
from posttrain.stages.conjectures import Conjectures
from posttrain.types import Task

FIRST = Seed(statement="1+2", proof=" 1+2=3\n#### 3", lemma="1+2=3")


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def conjecture(rate: float, *, invoked: bool = True, proof: int = 30, lemma: str = "1+2=3") -> Conjecture:
    return Conjecture(
        statement="1+2+3+4+5+", seed=replace(FIRST, lemma=lemma), rate=rate, proofs=("x" * proof,), invoked=invoked
    )


def test_only_conjectures_strictly_within_the_band_are_learned_from() -> None:
    rates = [0.0, 0.125, 0.25, 0.5, 1.0]
    assert [c.rate for c in barely_proved([conjecture(r) for r in rates], (0.0, 0.25), (20.0, 4096), rng())] == [0.125]


def test_where_no_proof_invokes_the_lemma_it_is_dropped_up_to_a_bound() -> None:
    some = [conjecture(0.1), *(conjecture(0.1, invoked=False) for _ in range(6))]
    kept = barely_proved(some, (0.0, 0.25), (3.0, 2), rng())
    assert [c.seed.lemma for c in kept] == ["1+2=3", FREE, FREE, FREE]


def test_trivial_ones_are_below_the_quantile_of_their_lemma() -> None:
    """Ratios 1, 2, 3, 4, 5 of one lemma: the .2 quantile is 1.8. The single one of another lemma is kept."""
    some = [conjecture(0.1, proof=10 * n) for n in range(1, 6)] + [conjecture(0.1, proof=1, lemma="other")]
    assert [c.ratio for c in without_trivial(some, 0.2)] == [2.0, 3.0, 4.0, 5.0, 0.1]


def test_targets_give_their_weight_to_the_most_similar_conjecture_that_is_not_full() -> None:
    """Four targets and two conjectures: each target gives 1/2. With the cap 1 the first two fill the near one."""
    target_MD, own_ND = np.array([[1.0, 0.0]] * 4, np.float32), np.array([[2.0, 0.1], [-1.0, 0.0]], np.float32)
    assert matched(target_MD, own_ND, 1.0, rng()).tolist() == [1.0, 1.0], "also where the cosine is negative"
    assert matched(target_MD, own_ND, 4.0, rng()).tolist() == [2.0, 0.0]
    assert matched(target_MD, own_ND, 0.5, rng()).tolist() == [0.5, 0.5], "then all are full"


def test_seeds_have_a_lemma_or_none_and_a_lemma_a_tenth_of_the_targets() -> None:
    proved = {f"1+2+{n}": (0.5, "proof", ["1+2=3"]) for n in range(8)} | {"9+9": (0.35, "proof", ["9+9=18"])}
    seeds = seeds_of(proved, 30, 0.35, rng())
    lemmas = [seed.lemma for seed in seeds]
    assert lemmas.count("1+2=3") == 3 and 0 < lemmas.count(FREE) < 8, "at most 3 of 30, and about half without"
    assert all(seed.statement != "9+9" for seed in seeds), "the bound itself is not above it"


def test_weight_of_a_proof() -> None:
    assert proof_weight("x" * 100, 4, 0.001) == pytest.approx(np.exp(-0.1) / 4)


def test_a_derivation_is_checked_step_by_step() -> None:
    assert not fault("5+8-3", " 5+8=13; 13-3=10\n#### 10") and not fault("1-5", " 1-5=-4\n#### -4")
    assert fault("5+8-3", " 5+8=13\n#### 13") == "stops 1 numbers early"
    assert fault("5+8-3", " 8+5=13; 13-3=10\n#### 10") == "step 1 is not 5+8=13"
    assert fault("5+8-3", " 5+8=13; 13-3=10\n#### 11") == "ends with '11', not 10"
    assert fault("5+8", " 5+8=13; 13+0=13\n#### 13") == "step 2 is one too many"
    assert fault("5+8", " 13") and fault("sum", " 5+8=13\n#### 13") == "the statement is no sum"


def test_a_target_without_a_statement_is_refused() -> None:
    with pytest.raises(UserError, match="no statement in its column 'statement'"):
        Derivation().check([Task(key="t", prompt="Q")])
    stage = stp().stages["rounds"]
    assert isinstance(stage, Conjectures)
    with pytest.raises(UserError, match="has no statement in the column 'statement'"):
        stage._targets([Task(key="t", prompt="Q")])


def test_a_conjecture_that_keeps_its_lemma_is_asked_for_with_it() -> None:
    stage = stp().stages["rounds"]
    assert isinstance(stage, Conjectures)
    assert stage.asked(FIRST) == "Lemma: 1+2=3\nTheorem: 1+2\nProof: 1+2=3\n#### 3\nNew:"
    assert stage.asked(replace(FIRST, lemma=FREE)) == "Theorem: 1+2\nProof: 1+2=3\n#### 3\nNew:"
    assert stage.lemmas(" 5+8=13; 13-3=10\n#### 10") == ["5+8=13", "13-3=10"]
