"""Images: from files and bytes to pixels, and from pixels to PNG.

The simplest PNG (8 bits each of red, green and blue, not filtered or interlaced), which is the one written here, is
read without any library; all others are read by Pillow (extra ``vision``).
"""

import base64
import binascii
import hashlib
import io
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posttrain.errors import UserError
from posttrain.errors.foreign import guard, read_bytes, shown
from posttrain.types import Image

Pixels = NDArray[np.uint8]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_MOST_PIXELS = 80_000_000
"""Larger images are refused before they are decompressed."""
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""What Pillow reads here."""


def pixels_of(image: Image) -> Pixels:
    """[height, width, 3] red, green and blue. Raises `UserError` for an invalid image."""
    data = encoded(image)
    plain = _read_plain_png(data)
    return _read_with_pillow(data, _name(image)) if plain is None else plain


def encoded(image: Image) -> bytes:
    """The bytes of the image's file. Raises `UserError` for a missing file."""
    if not image.path:
        return image.data
    try:
        return read_bytes(Path(image.path))
    except UserError as error:
        raise UserError(f"the image {shown(_name(image))}: {error}") from None


def write_png(pixels: Pixels) -> bytes:
    """A PNG of [height, width, 3] pixels."""
    height, width, channels = pixels.shape
    assert channels == 3 and pixels.dtype == np.uint8, "red, green and blue, a byte each"
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(kind, content) for kind, content in chunks)


def data_uri(data: bytes) -> str | None:
    """The image as a data URI, for a page; None for a format that browsers may not show."""
    forms = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}
    form = next((name for start, name in forms.items() if data.startswith(start)), None)
    return None if form is None else f"data:image/{form};base64,{base64.b64encode(data).decode('ascii')}"


def from_base64(text: str) -> bytes:
    """Bytes from base64 or a data URI. Raises `ValueError` for other text."""
    content = text.partition(",")[2] if text.startswith("data:") else text
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("an image that is neither a file nor base64") from None


def identity(image: Image) -> str:
    """The part of a task's key for an image: the path as in the data, or a hash of its bytes."""
    return image.name or image.path or hashlib.blake2b(image.data, digest_size=16).hexdigest()


def _name(image: Image) -> str:
    return image.name or image.path or f"of {len(image.data):,} bytes"


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _read_plain_png(data: bytes) -> Pixels | None:
    """The pixels of a PNG of `write_png`; None for any other file."""
    if not data.startswith(_SIGNATURE) or data[24:29] != b"\x08\x02\x00\x00\x00" or len(data) < 45:
        return None
    width, height = struct.unpack(">II", data[16:24])
    (length,) = struct.unpack(">I", data[33:37])
    end = 41 + length
    size = height * (1 + 3 * width)
    if data[37:41] != b"IDAT" or data[end + 8 : end + 12] != b"IEND" or not 0 < size <= 3 * _MOST_PIXELS:
        return None
    unpack = zlib.decompressobj()
    try:
        raw = unpack.decompress(data[41:end], size)
    except zlib.error:
        return None
    if len(raw) != size or unpack.decompress(unpack.unconsumed_tail, 1):
        return None
    rows = np.frombuffer(raw, np.uint8).reshape(height, 1 + 3 * width)
    return None if rows[:, 0].any() else rows[:, 1:].reshape(height, width, 3)


def _read_with_pillow(data: bytes, name: str) -> Pixels:
    try:
        import PIL.Image as pillow
    except ImportError:
        raise UserError(
            "reading images needs the package 'pillow', which is not installed: pip install 'posttrain[vision]'"
        ) from None
    with warnings.catch_warnings(), guard(f"the image {shown(name)} cannot be read"):
        warnings.simplefilter("error", pillow.DecompressionBombWarning)
        # Of a fixed list: one of the others starts a program, and some are whole languages.
        opened: Any = pillow.open(io.BytesIO(data), formats=_FORMATS)
        if opened.width * opened.height > _MOST_PIXELS:
            raise UserError(f"the image {name} is {opened.width} x {opened.height} pixels, which is too large")
        return np.asarray(opened.convert("RGB"), np.uint8)
