"""Incremental search for stop strings, in constant time per token.

Law: a completion stops at the first token after which its decoded text contains a stop string, and its text is
truncated where the earliest match starts. A match may span tokens, and a character may span tokens (its bytes), so that
text is decoded from a short sliding window of tokens, never token by token.
"""

from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"
_MAX_UNSETTLED = 3
"""Characters at the end that further tokens may still change: a UTF-8 character has up to four bytes, of which three
can be present, and some tokenizers decode each of them as a replacement character.
"""
_CONTEXT = 12
"""Tokens that stay in the window when it moves: more than an unsettled character can span."""


class StopStrings:
    """The text of one completion, watched for stop strings."""

    def __init__(self, stops: Sequence[str], decode: Callable[[list[int]], str]) -> None:
        self._stops = stops
        self._decode = decode
        self._overlap = max(map(len, stops)) - 1
        self._window: list[int] = []
        self._taken = 0  # characters of the window's text that are settled
        self._settled: list[str] = []
        self._tail = ""  # the end of the settled text, where a match may start

    def push(self, token: int) -> str | None:
        """Append a token. Returns the completion's text, truncated at the match, if there is a match."""
        self._window.append(token)
        text = self._decode(self._window)
        fresh = self._tail + text[self._taken :]
        begins = [at for at in (fresh.find(stop) for stop in self._stops) if at >= 0]
        if begins:
            settled = "".join(self._settled)
            return settled[: len(settled) - len(self._tail)] + fresh[: min(begins)]
        self._settle(text)
        return None

    def _settle(self, text: str) -> None:
        """Settle the characters of the window's text that no later token can change."""
        trailing = len(text) - len(text.rstrip(REPLACEMENT))
        end = max(self._taken, len(text) - min(trailing, _MAX_UNSETTLED))
        added, self._taken = text[self._taken : end], end
        self._settled.append(added)
        self._tail = (self._tail + added)[-self._overlap :] if self._overlap else ""
        if len(self._window) >= 2 * _CONTEXT:
            self._move(text, unsettled=len(text) - end)

    def _move(self, text: str, unsettled: int) -> None:
        """Drop the first tokens of the window."""
        kept = self._window[-_CONTEXT:]
        end = self._decode(kept)
        # If the unsettled characters start before these tokens (special tokens have no text), the window stays as is.
        if unsettled == 0 or (len(end) > unsettled and text.endswith(end[-unsettled - 1 :])):
            self._window, self._taken = kept, len(end) - unsettled
