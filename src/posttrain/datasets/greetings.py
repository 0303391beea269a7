"""Greetings with faults that code can count: the texts of `tasks/greetings`, and what agents without a model know.

A greeting is a few words for an occasion, "Party of kim (qhb):". It has up to eight faults: four words that are always
bad, two that are bad at one occasion, and two parts that may be missing. A greeting is good without any.

Source: the texts follow the experiment of Igniting Creative Writing, arXiv:2508.21476, in small; they are of this
package.
"""

from collections.abc import Sequence
from random import Random
from typing import Final

OCCASIONS: Final = ("party", "loss")
NAMES: Final = ("kim", "ann", "bob", "eve", "sam")
HOPES: Final = ("joy", "luck", "peace")
PLAIN: Final = ("um", "meh", "yo", "eh")
"""Words that are always bad."""
MISPLACED: Final = {"cake": "loss", "tears": "party"}
"""Words that are bad at one occasion."""
MISSING: Final = ("no name", "no hope")
FAULTS: Final = (*PLAIN, *(f"{word} at a {occasion}" for word, occasion in MISPLACED.items()), *MISSING)
COMMON: Final = ("um", "meh", "cake at a loss", "tears at a party")
"""Faults that annotators have seen."""
RARE: Final = tuple(fault for fault in FAULTS if fault not in COMMON)


def prompt_of(occasion: str, name: str, letters: str) -> str:
    """The request for a greeting."""
    return f"{occasion.capitalize()} of {name} ({letters}):"


def features(prompt: str, text: str) -> tuple[str, ...]:
    """Faults of a greeting, and the hopes in it, in a fixed order."""
    asked, words = set(prompt.lower().replace("(", " ").split()), set(text.lower().split())
    found: list[str] = [word for word in PLAIN if word in words]
    found += [f"{word} at a {where}" for word, where in MISPLACED.items() if word in words and where in asked]
    found += [] if any(name in words and name in asked for name in NAMES) else ["no name"]
    hoped = [hope for hope in HOPES if hope in words]
    return (*found, *hoped) if hoped else (*found, "no hope")


def faults_of(prompt: str, text: str) -> tuple[str, ...]:
    """Faults of a greeting."""
    return tuple(feature for feature in features(prompt, text) if feature not in HOPES)


def written(prompt: str, faults: Sequence[str], rng: Random) -> str:
    """A greeting with these faults, of those that are possible at its occasion, and with no other."""
    asked = prompt.lower().replace("(", " ").split()
    words = [] if "no name" in faults else [next((name for name in NAMES if name in asked), NAMES[0])]
    words += [] if "no hope" in faults else [rng.choice(HOPES)]
    words += [word for word in PLAIN if word in faults]
    for word, where in MISPLACED.items():
        words += [word] if f"{word} at a {where}" in faults and where in asked else []
    words = words or ["hi"]
    rng.shuffle(words)
    return " " + " ".join(words)
