"""Hostile data sets: every case that was ever met badly, and its relatives, by class."""

import json
import os
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks._hostile import CONTROL, SECRET, Make, sparse


def _rows(content: str | bytes, name: str = "mine.jsonl") -> Make:
    def make() -> Sequence[str]:
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
        return [f"tasks={name}"]

    return make


def _row(value: str) -> Make:
    good = "".join(f'{{"question": "{i}+1=", "answer": "{i + 1}"}}\n' for i in range(4))
    return _rows(good + value + "\n")


def _many(start: str, piece: str, times: int, end: str, name: str = "mine.jsonl", *extra: str) -> Make:
    """A file of a text that is repeated."""

    def make() -> Sequence[str]:
        together = max(1, min(times, 1_000_000 // len(piece)))
        with Path(name).open("wb") as file:
            file.write(start.encode())
            for _ in range(times // together):
                file.write((piece * together).encode())
            file.write((piece * (times % together) + end).encode())
        return [f"tasks={name}", *extra]

    return make


def _parquet(query: str, group: int = 2048) -> Make:
    def make() -> Sequence[str]:
        import duckdb

        duckdb.sql(f"COPY ({query}) TO 'mine.parquet' (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {group})")
        return ["tasks=mine.parquet"]

    return make


def _footer() -> Sequence[str]:
    size = 500_000_000
    with Path("mine.parquet").open("wb") as file:
        file.write(b"PAR1")
        file.truncate(4 + size)
        file.seek(4 + size)
        file.write(struct.pack("<I", size) + b"PAR1")
    return ["tasks=mine.parquet"]


def _data_folder(fill: Callable[[Path], None]) -> Make:
    def make() -> Sequence[str]:
        folder = Path("folder")
        folder.mkdir()
        shutil.copy("rows.jsonl", folder / "rows.jsonl")
        fill(folder)
        return ["tasks=folder", "!train"]

    return make


def _image(path: str, content: bytes) -> Make:
    def make() -> Sequence[str]:
        Path("picture.png").write_bytes(content)
        Path("mine.jsonl").write_text(
            "".join(json.dumps({"question": f"{i}?", "answer": "1", "image": path}) + "\n" for i in range(4))
        )
        seen = "{kind: decoder, layers: 1, width: 16, heads: 2, context: 64, vision: {patch: 4, size: 8}}"
        return ["tasks=mine.jsonl", f"models.policy.shape={seen}", "models.policy.source=new"]

    return make


def _png(width: int, height: int) -> bytes:
    import zlib

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(min(height * (1 + 3 * width), 10_000_000)), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def _image_again() -> Sequence[str]:
    content = Path("picture.png")
    kept = content.rename("kept.png")
    arguments = _image("picture.png", b"")()
    kept.replace("picture.png")
    return arguments


_ROW_OF_LISTS = '{"question": "a", "answer": "1", "x": [' + "[]," * 2_400_000 + "[]]}\n"
CLASSES: dict[str, dict[str, Make]] = {
    "data: broken": {
        "depth 900": _row('{"question": ' + "[" * 900 + "]" * 900 + "}"),
        "depth 900 beside": _row('{"question": "1", "answer": "1", "x": ' + "[" * 900 + "]" * 900 + "}"),
        "depth 100,000": _row("[" * 100_000),
        "messages of depth 900": _row(json.dumps({"question": "[" * 900 + "]" * 900, "answer": "1"})),
        "a key twice": _row('{"question": "1", "answer": "1", "answer": "2"}'),
        "column of control characters": _rows(
            "".join(json.dumps({f"{CONTROL}x": str(i), "why": "1"}) + "\n" for i in range(4))
        ),
        "cell of control characters": _row(json.dumps({"question": [CONTROL], "answer": "1"})),
        "digits": _row('{"question": "1", "answer": ' + "9" * 10_000 + "}"),
        "digits 4,000": _row('{"question": "1", "answer": ' + "9" * 4_000 + "}"),
        "number out of range": _row('{"question": "1", "answer": 1e999}'),
        "half a character": _row('{"question": "\\ud800", "answer": "1"}'),
        "half a character in a key": _row('{"question": "1", "answer": "1", "\\ud800": 1}'),
        "null in a text": _row(json.dumps({"question": "a\x00b", "answer": "1"})),
        "key of 1 MB": _row(json.dumps({"question": "1", "answer": "1", "a" * 1_000_000: 1, "b": {}})),
        "json: depth 900": _rows("[" * 900 + "]" * 900, "mine.json"),
        "json: data of depth 900": _rows('{"data": ' + "[" * 900 + "]" * 900 + "}", "mine.json"),
        "json: key twice": _rows('[{"question": "1", "question": "2"}]', "mine.json"),
        "csv: 100,000 columns": _rows(",".join(map(str, range(100_000))) + "\n1\n", "mine.csv"),
        "csv: nulls": _rows(b"question,answer\n\x00,\x00\n", "mine.csv"),
        "csv: open quote": _rows('question,answer\n"' + "a\n" * 1000, "mine.csv"),
        "parquet: rubbish": _rows(b"PAR1" + b"\xff" * 100 + b"PAR1", "mine.parquet"),
        "parquet: footer of 4 GB": _rows(b"PAR1" + b"\xff" * 100 + b"\xff\xff\xff\x7fPAR1", "mine.parquet"),
        "parquet: empty": _rows(b"", "mine.parquet"),
        "utf-16": _rows('{"question": "1"}'.encode("utf-16"), "mine.jsonl"),
    },
    "data: sizes": {
        "line of 500 MB": _many('{"question": "', "a", 500_000_000, '", "answer": "1"}\n'),
        "json of 100 million lists": _many("[", "[],", 100_000_000, "[]]", "mine.json"),
        "json of 80 million lists": _many("[", "[],", 80_000_000, "[]]", "mine.json"),
        "30 million empty rows": _many("", "{}\n", 30_000_000, ""),
        "30 million empty lines": _many("", "\n", 30_000_000, ""),
        "csv of 30 million empty lines": _many("question,answer\n", "\n", 30_000_000, "", "mine.csv"),
        "60 rows of 2.4 million lists": _many("", _ROW_OF_LISTS, 60, ""),
        "row of 5.5 million numbers": _many('{"question": "a", "answer": "1", "x": [', "9,", 5_500_000, "9]}\n"),
        "object whose last key is there twice": _row(
            "{" + "".join(f'"{i}":1,' for i in range(300_000)) + '"x":1,"x":1}'
        ),
        "csv whose last column is there twice": _rows(",".join(map(str, range(300_000))) + ",x,x\n1\n", "mine.csv"),
        "csv of 900,000 rows with one key": _many(
            "id,question\n", "1,1+1=\n", 900_000, "", "mine.csv", "tasks.columns.key=id"
        ),
        "parquet that unpacks to 5 GB": _parquet(
            "SELECT repeat('a', 1000000) AS question, '1' AS answer FROM range(5000)"
        ),
        "parquet with a cell of 200 MB": _parquet("SELECT repeat('a', 200000000) AS question, '1' AS answer"),
        "parquet with lists of 2 GB": _parquet(
            "SELECT 'a' AS question, '1' AS answer, [t, t, t, t, t, t, t] AS x FROM "
            "(SELECT repeat('a', 1000000) AS t) CROSS JOIN range(300)"
        ),
        "parquet with a list of 20 million": _parquet("SELECT 'a' AS question, '1' AS answer, range(20000000) AS x"),
        "parquet of 100 million rows": _parquet("SELECT 'a' AS question, '1' AS answer FROM range(100000000)", 1 << 20),
        "parquet with a footer of 500 MB": _footer,
        "100 GB sparse file": lambda: (sparse(Path("mine.jsonl"), 10**11), ["tasks=mine.jsonl"])[1],
        "100 GB sparse file in the folder": _data_folder(lambda folder: sparse(folder / "other.bin", 10**11)),
        "100 GB sparse rows in the folder": _data_folder(lambda folder: sparse(folder / "z.jsonl", 10**11)),
        "link to a device in the folder": _data_folder(lambda folder: (folder / "z.bin").symlink_to("/dev/zero")),
        "device as rows in the folder": _data_folder(lambda folder: (folder / "z.jsonl").symlink_to("/dev/zero")),
        "FIFO in the folder": _data_folder(lambda folder: os.mkfifo(folder / "z.jsonl")),
        "link to itself in the folder": _data_folder(lambda folder: (folder / "z.jsonl").symlink_to("z.jsonl")),
        "link to a private file": _data_folder(
            lambda folder: (
                Path("private.jsonl").write_text('{"question": "' + SECRET + '", "answer": "1"}\n'),
                (folder / "z.jsonl").symlink_to(Path("private.jsonl").absolute()),
                None,
            )[2]
        ),
        "10,000 files": _data_folder(
            lambda folder: [(folder / f"{i}.jsonl").write_text("") for i in range(10_000)] and None
        ),
    },
    "images": {
        "of 10^10 pixels": _image("picture.png", _png(100_000, 100_000)),
        "of 99 million pixels": _image("picture.png", _png(9_900, 10_000)),
        "rubbish": _image("picture.png", b"\x89PNG\r\n\x1a\n" + b"\xff" * 100),
        "PostScript": _image("picture.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nquit\n"),
        "a device": _image("/dev/zero", b""),
        "a folder": _image(".", b""),
        "a private file": _image("/etc/passwd", b""),
        "name of control characters": _image(CONTROL, b""),
        "huge file": lambda: (
            _image("picture.png", b"\x89PNG\r\n\x1a\n")(),
            os.truncate("picture.png", 10**10),
            _image_again(),
        )[2],
    },
}

GOOD: dict[str, Make] = {
    "JSON lines": _row('{"question": "1+1=", "answer": "2"}'),
    "JSON": _rows(json.dumps([{"question": f"{i}+1=", "answer": str(i + 1)} for i in range(8)]), "mine.json"),
    "CSV": _rows("question,answer\n" + "".join(f"{i}+1=,{i + 1}\n" for i in range(8)), "mine.csv"),
    "Parquet": _parquet("SELECT i || '+1=' AS question, (i + 1)::VARCHAR AS answer FROM range(8) t(i)"),
    "folder": _data_folder(lambda folder: None),
    "image": _image("picture.png", _png(8, 8)),
}
