"""TextWorld (Cote et al. 2018, arXiv:1806.11532): a game file that ``tw-make`` wrote: ``textworld:games/simple.z8``.

The turn is a command, the admissible ones are the legal actions, and the reward of a turn is what it adds to the score,
divided by the largest score. The solver types the game's own walkthrough. A game file is data, which the interpreter of
the library runs; the same commands have the same answers, so that snapshots are commands that are typed again.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posttrain.components.environments._foreign import Adapter, Seen, finite
from posttrain.errors import UserError


def open_adapter(name: str, arguments: dict[str, Any], view: str, calls: str) -> Adapter:
    """The game of a file."""
    import textworld

    if not Path(name).expanduser().is_file():
        raise UserError(f"textworld:{name}: there is no file {name}; make one with tw-make, of TextWorld")
    shown = ("admissible_commands", "won", "lost", "score", "max_score", "policy_commands")
    infos = textworld.EnvInfos(**dict.fromkeys(shown, True), **arguments)
    return Game(textworld.start(str(Path(name).expanduser()), request_infos=infos))


class Game(Adapter):
    """One game."""

    def __init__(self, game: Any) -> None:
        self._game = game
        self._typed: list[str] = []
        self._score, self._plan = 0.0, list[str]()

    def reset(self, seed: int, fields: Mapping[str, Any]) -> Seen:
        """Start."""
        self._game.seed(seed)
        state = self._game.reset()
        self._plan, self._score = list(state.policy_commands or ()), finite(state.score or 0)
        return Seen(text=state.feedback.strip("\n"), legal=list(state.admissible_commands or ()))

    def step(self, action: str) -> Seen:
        """Type the first line of the turn."""
        command = next((line.strip() for line in action.splitlines() if line.strip()), "")
        if not command:
            return Seen(text="This is no command.", valid=False)
        state, _, done = self._game.step(command)
        self._typed.append(command)
        self._plan = list(state.policy_commands or ())
        score = finite(state.score or 0)
        gained, self._score = score - self._score, score
        legal = None if done else list(state.admissible_commands or ())
        return Seen(
            text=state.feedback.strip("\n"),
            reward=gained / max(finite(state.max_score or 0), 1.0),
            terminated=bool(done),
            legal=legal,
        )

    def solution(self) -> str | None:
        """The next command of the walkthrough."""
        return self._plan[0] if self._plan else None

    def snapshot(self) -> Any:
        """The commands so far."""
        return list(self._typed)

    def restore(self, state: Any) -> None:
        """Type them again."""
        self._typed = []
        found = self._game.reset()
        self._plan, self._score = list(found.policy_commands or ()), finite(found.score or 0)
        for command in state:
            self.step(command)

    def close(self) -> None:
        """Close it."""
        self._game.close()
