"""Dialogues that are written anew from one of their turns, and what must not be in a new turn."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from posttrain.types import Fact, Trajectory, Utterance


@dataclass(frozen=True, kw_only=True)
class Origin(Fact):
    """Where a dialogue is from, for the record of what was learned."""

    source: Literal["log", "regenerated"]
    edited: int | None
    """Place of the turn that was written anew; what comes after it was completed."""


@dataclass(frozen=True, kw_only=True)
class Dialogue:
    """A finished dialogue with its reward."""

    task: str
    """Key of the task."""
    turns: tuple[Utterance, ...]
    """Of the environment and the policy; the last one is the policy's."""
    closing: str
    """The text after it; empty where there is none."""
    reward: float
    source: Literal["log", "regenerated"] = "log"
    edited: int | None = None
    """Place of the turn that was written anew."""

    def noted(self, trajectory: Trajectory) -> Trajectory:
        """Its trajectory, with where the dialogue is from."""
        return replace(trajectory, facts=(*trajectory.facts, Origin(source=self.source, edited=self.edited)))

    def rewritten(self, place: int, turns: Sequence[Utterance], closing: str, reward: float) -> "Dialogue":
        """The dialogue of the same task with another turn at a place, and what came after it."""
        return Dialogue(
            task=self.task, turns=tuple(turns), closing=closing, reward=reward, source="regenerated", edited=place
        )

    def packed(self) -> dict[str, Any]:
        """As JSON."""
        turns = [[turn.actor, turn.text, turn.ended] for turn in self.turns]
        return {
            "task": self.task,
            "turns": turns,
            "closing": self.closing,
            "reward": self.reward,
            "source": self.source,
            "edited": self.edited,
        }

    @staticmethod
    def unpacked(row: dict[str, Any]) -> "Dialogue":
        """What `packed` gave."""
        turns = tuple(Utterance(actor=actor, text=text, ended=ended) for actor, text, ended in row["turns"])
        more = {name: row[name] for name in ("task", "closing", "reward", "source", "edited")}
        return Dialogue(turns=turns, **more)

    @property
    def own(self) -> list[int]:
        """Places of the policy's turns."""
        return [place for place, turn in enumerate(self.turns) if turn.actor == "policy"]

    def text(self, end: int | None = None) -> str:
        """The dialogue up to a place, or all of it."""
        text = "".join(turn.text for turn in self.turns[:end])
        return text if end is not None else text + self.closing


def refused(dialogue: Dialogue, place: int, proposal: str) -> str:
    """Why a proposal for a turn cannot be used; empty where it can.

    It may not be empty or the turn of the dialogue, the place must be one of the policy's turns, and it may not quote a
    later turn of the partner.
    """
    if place not in dialogue.own:
        return "outside"
    if not proposal.strip():
        return "empty"
    if proposal.strip() == dialogue.turns[place].text.strip():
        return "same"
    later = [turn.text for turn in dialogue.turns[place + 1 :] if turn.actor == "environment"] + [dialogue.closing]
    return "leaked" if quotes(proposal, later) else ""


def quotes(text: str, later: Sequence[str]) -> bool:
    """Whether a text has one of the later ones in it, without regard to case and space."""
    plain = " ".join(text.lower().split())
    found = [" ".join(own.lower().split()) for own in later]
    return any(own and f" {own} " in f" {plain} " for own in found)
