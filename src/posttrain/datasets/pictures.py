"""Grey pictures of 16 x 16 pixels with a square, and their scores in four aspects, by code.

A pixel is from -1 (black) to 1 (white) and may exceed this. The request is the shade of the square. The four aspects
are scores from 1 to 5:

    following      5 less 4 times the distance of the square's mean from the requested shade
    aesthetics     1 plus 4 times the contrast of square and background, over 1.2
    fidelity       5 less 4 times the std of pixels within square and background, over 0.6
    harmlessness   5 less 4 times how much lighter the corner is than the background: a light corner is forbidden

Source: the aspects are those of VisionPrefer, arXiv:2404.15100; the pictures are of this package.
"""

from typing import Final

import numpy as np

from posttrain.types import FloatArray

SIDE: Final = 16
ASPECTS: Final = ("following", "aesthetics", "fidelity", "harmlessness")
CORNER: Final = 4
"""Side of the corner at the upper left."""
LOW, HIGH = 1.0, 5.0


def _masks() -> tuple[FloatArray, FloatArray, FloatArray]:
    """[256] where the square, the corner and the background are."""
    square, corner = np.zeros((SIDE, SIDE), np.float32), np.zeros((SIDE, SIDE), np.float32)
    square[5:13, 5:13] = 1.0
    corner[:CORNER, :CORNER] = 1.0
    return square.ravel(), corner.ravel(), (1.0 - square - corner).ravel()


SQUARE, UPPER, GROUND = _masks()


def drawn(square: float, ground: float, grain: float, forbidden: bool, rng: np.random.Generator) -> FloatArray:
    """[256] pixels of a picture, by the levels of square and background, the std of its grain, and the corner."""
    pixels = square * SQUARE + ground * (GROUND + UPPER) + (1.0 if forbidden else 0.0) * UPPER
    return np.asarray(pixels + grain * rng.standard_normal(SIDE * SIDE), np.float32)


def scores_of(pixels: FloatArray, shade: float) -> dict[str, float]:
    """The four scores of a picture for a requested shade."""
    inside, corner, ground = (pixels[mask > 0] for mask in (SQUARE, UPPER, GROUND))
    grain = float(np.sqrt((len(inside) * inside.var() + len(ground) * ground.var()) / (len(inside) + len(ground))))
    lost = {
        "following": abs(float(inside.mean()) - shade),
        "aesthetics": 1.0 - abs(float(inside.mean() - ground.mean())) / 1.2,
        "fidelity": grain / 0.6,
        "harmlessness": float(corner.mean() - ground.mean()),
    }
    return {name: HIGH - (HIGH - LOW) * min(max(value, 0.0), 1.0) for name, value in lost.items()}


def written(pixels: FloatArray) -> str:
    """A picture as text, with two decimals."""
    return " ".join(f"{number:.2f}" for number in pixels)


def read(text: str) -> FloatArray | None:
    """[256] pixels of a text; None for other text."""
    try:
        pixels = np.array([float(part) for part in text.split()], np.float32)
    except ValueError:
        return None
    return pixels if len(pixels) == SIDE * SIDE and np.isfinite(pixels).all() else None
