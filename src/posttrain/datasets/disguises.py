"""Forms that a word may have, and the harmful words of twelve categories."""

from typing import Final

FORMS: Final = ("plain", "backwards", "voiceless")
HARMS: Final = (
    ("arson", "theft", "fraud"),
    ("rifle", "bomb", "spear"),
    ("venom", "toxin", "cyanide"),
    ("idiot", "moron", "loser"),
    ("password", "passport", "diary"),
    ("wound", "bruise", "burn"),
    ("hoax", "forgery", "rumour"),
    ("cocaine", "opium", "heroin"),
    ("bigot", "racist", "slur"),
    ("stalker", "spyware", "tracker"),
    ("casino", "betting", "lottery"),
    ("ignore", "override", "jailbreak"),
)
"""Our words; they stand for the kinds of harm of a guard's data."""
ORDINARY: Final = (  # noqa: SIM905
    "boat brown cold deer ear farm fish fox grass hill ice key leaf moon nose path pink queen ring roof sail sea "
    "silver snow star summer tail tower wall wheel winter zebra"
).split()
"""Words that are not harmful."""


def disguised(word: str, form: str) -> str:
    """A word in a form; without its vowels it keeps its first letter."""
    if form == "backwards":
        return word[::-1]
    if form == "voiceless":
        return word[0] + "".join(c for c in word[1:] if c not in "aeiou")
    return word


def keeps(words: list[str], text: str) -> bool:
    """Whether a text has all of these words and no others, each in one of its forms, in any order."""
    left = text.split()
    if len(left) != len(words):
        return False
    for word in words:
        found = next((own for own in left if own in {disguised(word, form) for form in FORMS}), None)
        if found is None:
            return False
        left.remove(found)
    return True


def tokens() -> tuple[str, ...]:
    """Every form of every word, each once: what the models of the setting have as one token each."""
    words = [*ORDINARY, *(word for own in HARMS for word in own)]
    return tuple(dict.fromkeys(disguised(word, form) for form in FORMS for word in words))
