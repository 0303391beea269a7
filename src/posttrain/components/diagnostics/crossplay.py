r"""How well players of a game with a common reward do with one another: the matrix of mean returns, and their actions.

Source: LLM-Coordination, arXiv:2310.03903, and its released agents: an agent has a memory of its actions, may first
write what its partner intends, and then an action, which is mapped to a legal one; a verifier may refuse it. An action
is read after ``Action:`` and mapped to the legal action with the largest similarity; where nothing is similar, to a
random one. So no illegal action reaches the game; the shares of mapped and of random ones are reported.

    posttrain diagnose crossplay RUN1 RUN2 follow cell_3    # two runs and two scripted players

The game is `datasets/meeting`: two players on a ring who meet without seeing each other. Its equilibria are arbitrary
conventions, so that a player who always meets itself may meet others by chance. ``cell_K`` goes to cell K,
``follow`` to its partner's last word, ``random`` anywhere. With scripted partners the best response is found by
search, and the gap to it is reported. Questions about states of the game: the tasks ``meeting_questions``.

Differs: one small game in place of Hanabi, Overcooked and two others. The released verifier loop has no end; here
`verifications` limits it. Similarity is that of difflib.

Measured here: four tables trained by GRPO with themselves on the ring of 5 cells, 5 seeds (``python
docs/experiments/conventions.py``). Mean return untrained .59, with itself .77 [.73, .81], with another of the four .70
[.70, .71]: .07 [.03, .11] is convention. One that learned with all four has .73 with each, .03 [.00, .06] more. The
direction is the paper's; the size is not: no table gets near 1, which scripted conventions reach. The bundled
model's text is never a legal action (96 % mapped, 4 % random, seed 0): it misses .3 of the best responses.

Questions about states, answered by the bundled model before and after GRPO on other questions (5 seeds, ``python
docs/experiments/meeting_questions.py``): environment 3 % [0, 5] and 22 % [15, 28], theory of mind 5 % [2, 8] and 27 %
[20, 34], joint planning 12 % [7, 17] and 36 % [32, 41]. A constant letter is right in 31, 29 and 41 %: the form of an
answer is learned, and nothing of the game.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Annotated, Any, ClassVar, Final

import numpy as np
from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.datasets.meeting import Scripted, State, best_response, scripted, starts
from posttrain.engines import Sampler, Sampling, Server, wait_for
from posttrain.errors import UserError
from posttrain.statistics.intervals import wilson

ROWS: Final = (269,)
EXACT, MAPPED, RANDOM = "exact", "mapped", "random"


@frozen
class Crossplay(Diagnostic):
    """Plays every player with every player, itself included, in both orders."""

    subjects: ClassVar[tuple[str, ...]] = ("player", "...")

    games: Annotated[int, Field(ge=1, le=100_000)] = 40
    """Games of each pair, from the same first states for all."""
    ring: Annotated[int, Field(ge=3, le=9)] = 5
    """Cells."""
    limit: Annotated[int, Field(ge=1, le=100)] = 6
    """Actions of both players together."""
    sampling: Sampling = Sampling(max_tokens=16, temperature=0.0)
    """How models write."""
    infers: bool = False
    """Whether a model first writes what its partner intends, which it then reads."""
    verifications: Annotated[int, Field(ge=0, le=10)] = 0
    """How often a model may refuse its own action (any reply without ``okay``) and choose among the others."""
    searched: bool = True
    """Whether best responses to scripted players are found by search."""
    seed: NonNegativeInt = 0
    """Decides first states and random actions."""

    def examine(self, *subjects: Subject) -> Finding:
        """Play, and compare with best responses."""
        names = [subject.name for subject in subjects]
        players = [self._player(subject) for subject in subjects]
        cells = [[self._games(one, other, i, j) for j, other in enumerate(players)] for i, one in enumerate(players)]
        matrix = [[cell["return"] for cell in row] for row in cells]
        own = [cells[i][i]["return"] for i in range(len(names))]
        others = [cells[i][j]["return"] for i in range(len(names)) for j in range(len(names)) if i != j]
        values = {
            "players": names,
            "matrix": matrix,
            "intervals": [[cell["interval"] for cell in row] for row in cells],
            "self": float(np.mean(own)),
            "cross": float(np.mean(others)) if others else None,
            "grounding": {name: self._grounding(cells, i) for i, name in enumerate(names)},
            "gaps": self._gaps(names, matrix),
        }
        return Finding(values=values, lines=_lines(values))

    def _player(self, subject: Subject) -> "Player":
        """A scripted player by its name, or a model."""
        if subject.name == "random":
            return Player(name=subject.name)
        script = scripted(subject.name, self.ring)
        if script is not None:
            return Player(name=subject.name, script=script)
        return Player(name=subject.name, server=subject.serve(subject.load()))

    def _games(self, one: "Player", other: "Player", i: int, j: int) -> dict[str, Any]:
        """All games of a pair, `one` first."""
        rng = np.random.Generator(np.random.Philox(key=self.seed))
        first = starts(self.ring, self.limit)
        chosen = [first[k] for k in rng.integers(len(first), size=self.games)]

        async def run() -> list[tuple[float, list[tuple[int, str]]]]:
            return list(await asyncio.gather(*(self._game(s, (one, other), (i, j, n)) for n, s in enumerate(chosen))))

        played = wait_for(run())
        won = sum(value > 0 for value, _ in played)
        kinds = [kind for _, own in played for kind in own]
        return {"return": won / self.games, "interval": list(wilson(won, self.games)), "kinds": kinds}

    async def _game(
        self, state: State, players: tuple["Player", "Player"], key: tuple[int, int, int]
    ) -> tuple[float, list[tuple[int, str]]]:
        """One game: the common return, and for each action who acted and how it was grounded."""
        rng = np.random.default_rng([self.seed, *key])
        kinds: list[tuple[int, str]] = []
        memories: tuple[list[str], list[str]] = ([], [])
        while not state.over:
            own = state.player
            action, kind = await self._act(players[own], state, memories[own], rng, (*key, state.turn))
            memories[own].append(action)
            kinds.append((own, kind))
            state = state.after(action)
        return float(state.met), kinds

    async def _act(
        self, player: "Player", state: State, memory: Sequence[str], rng: np.random.Generator, key: tuple[int, ...]
    ) -> tuple[str, str]:
        """A legal action of a player, and how it was grounded."""
        legal = list(state.legal)
        chance = float(rng.random())
        if player.script is not None:
            return player.script(state), EXACT
        if player.server is None:
            return legal[int(chance * len(legal))], EXACT
        sampler = player.server.bind("crossplay", *key)
        text = state.shown() + (f"Your moves so far: {', '.join(memory)}.\n" if memory else "")
        if self.infers:
            text += "Your partner intends:"
            text += f"{await self._written(sampler, text)}\n"
        action, kind = legal[0], EXACT
        for refusals in range(self.verifications + 1):
            asked = f"{text}Actions: {', '.join(legal)}.\nAction:"
            found, kind = grounded(await self._written(sampler, asked), legal)
            action = legal[int(chance * len(legal))] if found is None else found
            if refusals == self.verifications or len(legal) == 1:
                break
            remark = await self._written(sampler, f"{asked} {action}\nVerification:")
            if "okay" in remark.lower():
                break
            legal.remove(action)
            text += f"Not {action}: {remark.strip()}\n"
        return action, kind

    async def _written(self, sampler: Sampler, prompt: str) -> str:
        """What a model writes. Raises `UserError` where the prompt leaves no room."""
        ids = sampler.encode(prompt)
        if len(ids) >= sampler.context:
            raise UserError(
                f"the prompt of a move has {len(ids)} tokens, which leaves no room in the context of "
                f"{sampler.context}; lower ring or limit, or take a model with a longer context"
            )
        [completion] = await sampler.sample(ids, 1, self.sampling)
        return completion.text

    def _grounding(self, cells: Sequence[Sequence[Mapping[str, Any]]], i: int) -> dict[str, float]:
        """Shares of a player's actions that were legal as written, mapped, and random."""
        kinds = [kind for row in (cells[i],) for cell in row for own, kind in cell["kinds"] if own == 0]
        kinds += [kind for row in cells for own, kind in row[i]["kinds"] if own == 1]
        return {kind: kinds.count(kind) / max(len(kinds), 1) for kind in (EXACT, MAPPED, RANDOM)}

    def _gaps(self, names: Sequence[str], matrix: Sequence[Sequence[float]]) -> dict[str, dict[str, float]]:
        """For each scripted second player, its best response and what each first player misses of it."""
        found: dict[str, dict[str, float]] = {}
        for j, name in enumerate(names):
            script = scripted(name, self.ring) if self.searched else None
            if script is not None:
                best = best_response(script, 0, self.ring, self.limit)
                found[name] = {"best": best, **{own: best - matrix[i][j] for i, own in enumerate(names)}}
        return found


@dataclass(frozen=True, kw_only=True)
class Player:
    """A scripted player, a model, or without both one who acts at random."""

    name: str
    script: Scripted | None = None
    server: Server | None = None


def grounded(text: str, legal: Sequence[str]) -> tuple[str | None, str]:
    """The legal action that a text means, and how it was found; None where it is like none of them.

    The action is what follows ``Action:`` on its line, or else the first line that is not empty. Of equally similar
    actions the first is taken.
    """
    found = re.search(r"Action:[ \t]*(.*)", text)
    lines = [line.strip() for line in (found[1] if found else text).splitlines() if line.strip()]
    wanted = lines[0] if lines else ""
    if wanted in legal:
        return wanted, EXACT
    ratios = [SequenceMatcher(None, wanted.lower(), action.lower()).ratio() for action in legal]
    if not ratios or max(ratios) == 0.0:
        return None, RANDOM
    return legal[ratios.index(max(ratios))], MAPPED


def _lines(values: Mapping[str, Any]) -> list[str]:
    """The matrix, first players by row, and grounding."""
    names = values["players"]
    width = max(map(len, names))
    lines = ["mean return, the row's player acts first", f"{'':{width}}  {'  '.join(names)}"]
    for name, row in zip(names, values["matrix"], strict=True):
        numbers = "  ".join(f"{value:{max(len(own), 4)}.2f}" for own, value in zip(names, row, strict=True))
        lines.append(f"{name:{width}}  {numbers}")
    cross = values["cross"]
    lines.append(f"with itself {values['self']:.2f}, with others {'unknown' if cross is None else f'{cross:.2f}'}")
    for name, shares in values["grounding"].items():
        lines.append(f"{name:{width}}  " + ", ".join(f"{kind} {share:.0%}" for kind, share in shares.items()))
    for name, gaps in values["gaps"].items():
        own = ", ".join(f"{one} {gap:+.2f}" for one, gap in gaps.items() if one != "best")
        lines.append(f"best response to {name}: {gaps['best']:.2f}; missed by {own}")
    return lines
