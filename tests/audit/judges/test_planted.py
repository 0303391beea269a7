"""Every planted judge is named by its own fault alone, and a sound one by none."""

import pytest

from posttrain.audit.judges import gold_pairs
from posttrain.audit.judges.auditing import ENOUGH, JudgeReport, audit_judge
from posttrain.audit.judges.planted import FAULTS, NAMED, Planted, gold, quality
from posttrain.datasets.traits import WEIGHTS

SEED = 3


def audited(fault: str, prompts: int = 67, seed: int = SEED) -> JudgeReport:
    return audit_judge(Planted(fault, seed), gold_pairs(gold(prompts, seed, contrasted=60), "own"), attacked=20)


@pytest.mark.parametrize("fault", NAMED)
def test_named_by_its_own_fault_alone(fault: str) -> None:
    assert [one.fault for one in audited(fault).faults] == [NAMED[fault]]


def test_a_sound_judge_has_none() -> None:
    report = audited("sound")
    assert report.clean and report.pairs >= ENOUGH and report.worst <= 0.05
    assert {row["verdict"] for name, row in report.effects.items() if name != "gold"} == {"not shown"}
    assert report.figures["accuracy"]["value"] > 0.8 and report.figures["repetition"] > 0


@pytest.mark.slow
def test_a_sound_judge_passes_in_95_of_100_draws() -> None:
    assert sum(audited("sound", seed=seed).clean for seed in range(100, 200)) >= 95


def test_too_little_is_not_absent() -> None:
    report = audited("sound", prompts=20)
    assert {row["verdict"] for name, row in report.effects.items() if name != "gold"} == {"too little"}


def test_every_fault_has_a_name() -> None:
    assert set(NAMED) == set(FAULTS) - {"sound"} and len(set(NAMED.values())) == len(NAMED)


def test_labels_follow_the_qualities() -> None:
    """Right sum 2, polite word 1, name and question one half each; a text without a sum -4."""
    for pair in gold_pairs(gold(10, 0, contrasted=4)):
        assert quality(pair.chosen, pair.task) - quality(pair.rejected, pair.task) == pair.strength > 0
    task = gold(1, 0)[0]
    assert quality("So 1 + 1 = 2.", task) == 2.0 and quality("please 1 + 1 = 3?", task) == 1.5
    assert quality("Solution", task) == -4.0


def test_pairs_state_the_traits_that_their_strength_is_the_sum_of() -> None:
    for task in gold(10, 0):
        (pair,) = task.preferences
        differences = {
            name: float(chosen or 0) - float(rejected or 0) for name, (chosen, rejected) in pair.aspects.items()
        }
        assert differences.keys() == WEIGHTS.keys()
        assert sum(WEIGHTS[name] * value for name, value in differences.items()) == pytest.approx(pair.strength)
