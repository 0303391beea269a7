"""Pictures from files and bytes, and back."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from posttrain.datasets.images import data_uri, from_base64, identity, pixels_of, write_png
from posttrain.errors import UserError
from posttrain.types import Image

pillow = pytest.importorskip("PIL.Image")


def noise(height: int = 5, width: int = 7) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3)).astype(np.uint8)


def saved(pixels: np.ndarray, form: str, **settings: object) -> bytes:
    file = io.BytesIO()
    pillow.fromarray(pixels).save(file, form, **settings)
    return file.getvalue()


def test_our_png_is_read_by_us_and_by_others() -> None:
    data = write_png(noise())
    assert np.array_equal(pixels_of(Image(data=data)), noise())
    assert np.array_equal(np.asarray(pillow.open(io.BytesIO(data))), noise())


def test_what_others_write_is_read(tmp_path: Path) -> None:
    smooth = np.linspace(0, 255, 32 * 32 * 3).reshape(32, 32, 3).astype(np.uint8)
    assert np.array_equal(pixels_of(Image(data=saved(smooth, "PNG"))), smooth), "filtered rows"
    grey = saved(smooth[..., 0], "PNG")
    assert np.array_equal(pixels_of(Image(data=grey)), np.repeat(smooth[..., :1], 3, axis=2))
    (tmp_path / "a.bmp").write_bytes(saved(smooth, "BMP"))
    assert np.array_equal(pixels_of(Image(path=str(tmp_path / "a.bmp"))), smooth)


@pytest.mark.parametrize("data", [b"", b"text", b"\x89PNG\r\n\x1a\n" + b"\0" * 60, write_png(noise())[:-30]])
def test_what_is_no_picture_is_reported(data: bytes) -> None:
    with pytest.raises(UserError, match=r"the image .* cannot be read"):
        pixels_of(Image(data=data, name="mine"))


def test_a_file_that_is_not_there_is_reported() -> None:
    with pytest.raises(UserError, match=r"no-such-file.png' cannot be read: No such file"):
        pixels_of(Image(path="no-such-file.png"))


def test_a_picture_that_claims_to_be_huge_is_not_unpacked() -> None:
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n"
    for kind, content in ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(100_000))), (b"IEND", b"")):
        bomb += struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    with pytest.raises(UserError, match=r"too large|cannot be read"):
        pixels_of(Image(data=bomb))


def test_links_hold_pictures() -> None:
    data = write_png(noise())
    link = data_uri(data)
    assert link is not None and link.startswith("data:image/png;base64,") and from_base64(link) == data
    assert data_uri(b"<svg>") is None
    with pytest.raises(ValueError, match="neither a file nor base64"):
        from_base64("!!")


def test_what_stands_for_a_picture() -> None:
    assert identity(Image(path="/here/a.png", name="a.png")) == "a.png"
    assert identity(Image(data=b"1")) == identity(Image(data=b"1")) != identity(Image(data=b"2"))
