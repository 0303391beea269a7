"""Every hostile program of ours, against every tier, as root and as an ordinary user."""

import json
import os

import pytest

from posttrain.sandbox import attacks
from posttrain.sandbox.launch import Tier
from posttrain.sandbox.pool import Pool
from posttrain.sandbox.tiers import NOT_HELD, obstacle
from tests.sandbox import as_nobody

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ALL_OF_THEM = """
import json, sys
from dataclasses import asdict
from posttrain.sandbox import attacks, tiers
from posttrain.sandbox.pool import Pool
reason = tiers.obstacle(sys.argv[1])
pool = None if reason else Pool(sys.argv[1], 1)
chosen = [a for a in attacks.all_attacks() if hash_of(a.name) % 2 == int(sys.argv[2])] if pool else []
print(json.dumps({"reason": reason, "findings": [asdict(f) for f in attacks.run(pool, chosen)] if pool else []}))
""".replace("hash_of(a.name)", "len(a.name)")


def broken_promises(findings: list[attacks.Finding], tier: Tier) -> list[str]:
    return [
        f"{finding.attack}: {finding.verdict} ({finding.outcome}) {finding.explanation}"
        for finding in findings
        if finding.verdict == "broken" or (finding.verdict == "escaped" and finding.promise not in NOT_HELD[tier])
    ]


def test_there_are_many_and_each_is_against_a_promise() -> None:
    every = attacks.all_attacks()
    assert len(every) >= 56
    assert {attack.promise for attack in every} == set(attacks.PROMISES)
    assert any(attack.startup for attack in every)
    assert all(set(lacks) <= set(attacks.PROMISES) for lacks in NOT_HELD.values())


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
@pytest.mark.parametrize("warm", [False, True], ids=["started", "forked"])
def test_as_root_nothing_escapes(warm: bool) -> None:
    if reason := obstacle("cgroup"):
        pytest.skip(reason)
    try:
        pool = Pool("cgroup", 1)
    except OSError as error:
        pytest.skip(f"no control groups here: {error}")
    try:
        findings = list(attacks.run(pool, attacks.all_attacks(), warm=warm))
        assert pool.forks
    finally:
        pool.close()
    assert not broken_promises(findings, "cgroup")


@pytest.mark.parametrize("half", ["0", "1"])
@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
def test_as_an_ordinary_user_every_promise_of_the_tier_holds(tier: Tier, half: str) -> None:
    if not as_nobody.possible():
        pytest.skip("needs root, unshare and setpriv")
    done = as_nobody.run(ALL_OF_THEM, tier, half)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    if answer["reason"]:
        pytest.skip(answer["reason"])
    findings = [attacks.Finding(**finding) for finding in answer["findings"]]
    if findings and all(finding.verdict == "broken" for finding in findings):
        pytest.skip(f"this machine does not give the tier: {findings[0].explanation}")
    assert not broken_promises(findings, tier)


def test_without_isolation_most_things_escape() -> None:
    """The attacks are real: where nothing holds them, they get what they are after."""
    names = {"read_secret", "connect_tcp", "see_variables", "write_secret", "connect_unix_path", "read_homes"}
    pool = Pool("none", 1)
    try:
        chosen = [attack for attack in attacks.all_attacks() if attack.name in names]
        verdicts = {finding.attack: finding.verdict for finding in attacks.run(pool, chosen)}
    finally:
        pool.close()
    assert verdicts["see_variables"] == "escaped" or verdicts["read_secret"] == "escaped"
    assert sum(verdict == "escaped" for verdict in verdicts.values()) >= 4
