"""What can become of a trace folder's files: each function does one such thing to a folder, as a seed decides."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import zstandard

from otel_rollout.folder import frame_of, scan_frames
from otel_rollout.otlp import json_of_request, varint

__all__ = ["MUTATIONS", "Mutation", "field"]

HOSTILE_NAMES = (
    "\x1b[2J\x1b[31mred.otlp.zst",
    "line\nbreak.otlp.zst",
    "\u202eevil.jsonl",
    "steps=٣-٤",
    "steps=0-" + "9" * 200,
    "steps=-0--0",
    "steps=\x1b]0;title\x07",
    ".hidden.otlp.zst",
    "x" * 240 + ".jsonl",
    "host-1-0001-7.otlp.zst",
    "..otlp.zst",
    ".index.jsonl",
    "=.otlp.zst",
    "%s{0}.otlp.zst",
    os.fsdecode(b"\xff\xfe.otlp.zst"),
)
HOSTILE_VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 2, 7, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), 10**30),
    *(1.5, -0.0, 1e300, 1e308, -1e300),
    *("", "x", "\x1b[31m\x07", "\u202e\u2028\x9b", "0", "-1", "1_0", "nan", "9" * 5000, "f" * 32),
    *("F" * 64, "x" * 100_000),
    *([], [[]], [1], [None, 1, "a"], {}, {"a": 1}, {"a": [1, 2]}, {"a": {"b": [1]}}),
    *({"stringValue": 5}, {"intValue": "1e9"}, {"doubleValue": "Infinity"}, {"bytesValue": "not base64!"}),
    {"arrayValue": {"values": [{"boolValue": "yes"}]}},
    {"kvlistValue": {"values": [{"key": 1}]}},
)
JUNK = (
    *(b"\x1b[31m\n", b"\n", b"\0" * 100, b"\x28\xb5\x2f\xfd" * 20, b"[" * 2000 + b"\n"),
    b'{"resourceSpans":[{"scopeSpans":[{"spans":[{}]}]}]}\n',
    b'{"resourceSpans":7,"crc32":"00000000"}\n',
)
MAX_EDIT = 200


class Mutation(NamedTuple):
    """One kind of damage.

    Args:
        name: What it is called in reports.
        apply: Does it, and says what it did; nothing if the folder has nothing for it.
        may_lose: Whether what nothing else tells of can be gone without a word: a file that is removed, a cut between
            two lines of a file that has no index.
        may_change: Whether what is shown can change: what says otherwise has a checksum that holds.
    """

    name: str
    apply: Callable[[Path, random.Random], str]
    may_lose: bool = False
    may_change: bool = False


def _files(folder: Path, pattern: str = "") -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and re.search(pattern, path.as_posix()))


def _edit(change: Callable[[bytearray, random.Random], str]) -> Callable[[Path, random.Random], str]:
    """Return a mutation of the bytes of one file."""

    def apply(folder: Path, rng: random.Random) -> str:
        path = rng.choice(_files(folder))
        data = bytearray(path.read_bytes())
        if not data:
            return ""
        done = change(data, rng)
        path.write_bytes(data)
        return f"{path.relative_to(folder)}: {done}"

    return apply


def _flip(data: bytearray, rng: random.Random) -> str:
    place, bit = rng.randrange(len(data)), rng.randrange(8)
    data[place] ^= 1 << bit
    return f"bit {bit} of byte {place}"


def _replace(data: bytearray, rng: random.Random) -> str:
    """Put other bytes in place of some: none, the same twice, zeros, noise, junk, those of another place."""
    start = rng.choice((0, len(data), rng.randrange(len(data))))
    end = rng.choice((start, start + 1, start + rng.randrange(1, MAX_EDIT)))
    old, other = bytes(data[start:end]), rng.randrange(len(data))
    noise = rng.randbytes(rng.randrange(1, MAX_EDIT))
    new = rng.choice((b"", old * 2, bytes(len(old)), noise, rng.choice(JUNK), data[other : other + len(old)]))
    data[start:end] = new
    return f"{start}..{end} = {bytes(new[:20])!r}"


def _cut(data: bytearray, rng: random.Random) -> str:
    place = rng.choice((0, rng.randrange(len(data)), rng.randrange(len(data))))
    del data[place:]
    return f"cut at {place}"


def _move_line(folder: Path, rng: random.Random) -> str:
    """Put a line elsewhere, or there as well."""
    path = rng.choice(_files(folder, r"\.jsonl$"))
    lines = path.read_bytes().splitlines(keepends=True)
    place = rng.randrange(len(lines))
    line = rng.choice((lines.pop, lines.__getitem__))(place)
    lines.insert(rng.randrange(len(lines) + 1), line)
    path.write_bytes(b"".join(lines))
    return f"{path.relative_to(folder)}: line {place}"


def _double_file(folder: Path, rng: random.Random) -> str:
    path = rng.choice(_files(folder, r"\.(jsonl|otlp|otlp\.zst)$"))
    other = path.with_name(path.name.replace("host-", f"other{rng.randrange(9)}-"))
    shutil.copy(path, other)
    return f"{path.relative_to(folder)} as {other.name}"


def _exchange_files(folder: Path, rng: random.Random) -> str:
    first, second = rng.sample(_files(folder), 2)
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)
    return f"{first.relative_to(folder)} and {second.relative_to(folder)}"


def _remove(pattern: str) -> Callable[[Path, random.Random], str]:
    """Return a mutation that removes a file whose name has a pattern."""

    def apply(folder: Path, rng: random.Random) -> str:
        if not (files := _files(folder, pattern)):
            return ""
        path = rng.choice(files)
        path.unlink()
        return f"without {path.relative_to(folder)}"

    return apply


def _rename(folder: Path, rng: random.Random) -> str:
    path = rng.choice(sorted(folder.rglob("*")))
    name = rng.choice(HOSTILE_NAMES)
    path.rename(path.with_name(name))
    return f"{path.relative_to(folder)} is {name!r}"


def _link(folder: Path, rng: random.Random) -> str:
    """Put a link somewhere: to a file or a folder in the folder, above it, to nowhere, to itself, to a device."""
    place = rng.choice([folder, *(path for path in sorted(folder.rglob("*")) if path.is_dir())])
    name = rng.choice(
        ("a", "steps=000000-000099", "steps=000900-000999", "validate", "link.jsonl", "link.otlp.zst", "z-1-0abc.jsonl")
    )
    path = place / name
    if path.exists():
        return ""
    devices = [Path("/dev/zero"), Path("/dev/null")]
    target = rng.choice([*sorted(folder.rglob("*")), folder, folder.parent, Path(), Path("nowhere"), path, *devices])
    path.symlink_to(target)
    return f"{path.relative_to(folder)} -> {target.name or target}"


def _no_file(folder: Path, rng: random.Random) -> str:
    """Put something that is no file where one should be."""
    path = rng.choice(_files(folder))
    kind = rng.choice(("folder", "pipe", "sparse file", "empty file"))
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.touch()
        os.truncate(path, 2**26 if kind == "sparse file" and path.suffix == ".zst" else 0)
    return f"{path.relative_to(folder)} is a {kind}"


IDS = b"\x0a\x10" + b"\x01" * 16 + b"\x12\x08" + b"\x01" * 8


def field(number: int, value: bytes) -> bytes:
    """Return a field in protobuf."""
    return bytes([number << 3 | 2]) + varint(len(value)) + value


def _bomb(folder: Path, rng: random.Random) -> str:
    """Put a small file that is large: zeros, lists, lists within lists, many values."""
    kind, line = rng.choice(
        (
            ("spaces", b" " * (2**28 - 1)),
            ("too many spaces", b" " * (2**28 + 1)),
            ("lists", b'{"resourceSpans":[' + b"[]," * 5_500_000 + b"[]]}"),
            ("numbers", b'{"resourceSpans":[' + b"1000," * 5_500_000 + b"1]}"),
            ("depth", b"[" * 10_000_000),
            ("resources", b"\x0a\x00" * 10_000_000),
            ("attributes", field(1, field(2, field(2, IDS + b"\x4a\x00" * 10_000_000)))),
        )
    )
    folder.joinpath("steps=000000-000099").mkdir(exist_ok=True)
    ending = rng.choice((".jsonl", ".jsonl.zst", ".otlp.zst"))
    path = folder / "steps=000000-000099" / f"host-9-0009{ending}"
    if ending.endswith(".zst"):
        line = zstandard.compress(line, 1)
    path.write_bytes(line if ending != ".jsonl" else line + b"\n")
    return f"{kind} in {path.name}"


def _semantic_index(folder: Path, rng: random.Random) -> str:
    path = rng.choice(_files(folder, r"\.index\.jsonl$"))
    lines = path.read_bytes().splitlines()
    place = rng.randrange(len(lines))
    entry = json.loads(lines[place])
    del entry["crc32"]
    done = _change(entry, rng)
    lines[place] = _sealed(_dumps(entry))
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return f"{path.relative_to(folder)}: line {place}: {done}"


def _semantic_frame(folder: Path, rng: random.Random) -> str:
    path = rng.choice(_files(folder, r"\.otlp\.zst$"))
    request = zstandard.ZstdDecompressor().decompress(path.read_bytes())
    if rng.random() < 0.5:
        message = json.loads(json_of_request(request))
        done = "; ".join(_change(message, rng) for _ in range(rng.randrange(1, 3)))
        data = _dumps(message)
    else:
        done, data = _changed(request, rng)
    path.write_bytes(zstandard.ZstdCompressor(write_checksum=True).compress(data))
    if rng.random() < 0.5:
        path.with_name(path.name.replace(".otlp.zst", ".index.jsonl")).unlink(missing_ok=True)
    return f"{path.relative_to(folder)}: {done}"


def _semantic_journal(folder: Path, rng: random.Random) -> str:
    path = rng.choice(_files(folder, r"open/.*\.otlp\.zst$"))
    requests = [frame.request for frame in scan_frames(path) if frame.request is not None]
    place = rng.randrange(len(requests))
    done, requests[place] = _changed(requests[place], rng)
    path.write_bytes(b"".join(map(frame_of, requests)))
    return f"{path.relative_to(folder)}: frame {place}: {done}"


def _changed(request: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Return a request with other bytes, whose checksum will hold."""
    data = bytearray(request)
    done = []
    for _ in range(rng.randrange(1, 4)):
        place = rng.randrange(len(data))
        data[place : place + rng.randrange(2)] = rng.randbytes(rng.randrange(3))
        done.append(str(place))
    return f"changed at {', '.join(done)}", bytes(data)


def _change(message: Any, rng: random.Random) -> str:
    """Change one value somewhere in a message: another value, none at all, or one more."""
    places: list[tuple[Any, Any]] = []
    waiting = [message]
    while waiting:
        value = waiting.pop()
        keys = list(value) if isinstance(value, dict) else range(len(value))
        for key in keys:
            places.append((value, key))
            if isinstance(value[key], (dict, list)):
                waiting.append(value[key])
    holder, key = rng.choice(places)
    if rng.random() < 0.15:
        del holder[key]
        return f"without {key!r}"
    value = rng.choice(HOSTILE_VALUES)
    said = repr(value)[:40]
    if rng.random() < 0.05:
        for _ in range(rng.choice((5, 100, 250))):
            value = {"arrayValue": {"values": [value]}}
    holder[key] = value
    return f"{key!r} = {said}"


def _dumps(message: Any) -> bytes:
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def _sealed(text: bytes) -> bytes:
    return b'%b,"crc32":"%08x"}' % (text[:-1], crc32(text[:-1]))


MUTATIONS = (
    *(Mutation("flip", _edit(_flip)) for _ in range(6)),
    *(Mutation("replace", _edit(_replace)) for _ in range(6)),
    Mutation("cut", _edit(_cut), may_lose=True),
    *(Mutation("move line", _move_line) for _ in range(2)),
    Mutation("double file", _double_file),
    Mutation("exchange files", _exchange_files, may_lose=True),
    Mutation("remove file", _remove(""), may_lose=True),
    Mutation("remove index", _remove(r"\.index\.jsonl")),
    Mutation("rename", _rename, may_lose=True),
    Mutation("link", _link),
    Mutation("no file", _no_file, may_lose=True),
    *(Mutation("semantic index", _semantic_index, may_change=True) for _ in range(2)),
    *(Mutation("semantic frame", _semantic_frame, may_change=True) for _ in range(3)),
    *(Mutation("semantic journal", _semantic_journal, may_change=True) for _ in range(2)),
)
BOMB = Mutation("bomb", _bomb)
"""One of these takes a second: among hundreds of others there is one."""
