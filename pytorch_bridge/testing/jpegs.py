"""JPEGs at random, and Pillow's pixels of them. Run with -m, it writes the Go tests' testdata.

Some are pictures that Pillow writes, with all the options that it has. Others are coefficients at
random, written here, with what Pillow does not write: any sampling of colours, scans and markers in
any order, 16 bits of quantisation, values that no picture has.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import math
import random
import struct
import warnings
import zipfile
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..native.toolchain import ROOT

TESTDATA = ROOT / "gotorch/vision/imageio/internal/jpeg/testdata/pillow.zip"

ZIGZAG = sorted(
    range(64), key=lambda n: (n // 8 + n % 8, (n // 8 if (n // 8 + n % 8) % 2 else n % 8))
)


def pixels(encoded: bytes) -> tuple[int, int, int, bytes]:
    """Width, height, number of channels and the pixels that Pillow decodes."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        picture = Image.open(io.BytesIO(encoded))
        return *picture.size, len(picture.getbands()), picture.tobytes()


def some_size(rng: random.Random) -> tuple[int, int]:
    if rng.random() < 0.02:
        return rng.randint(60, 600), rng.randint(60, 600)
    return rng.randint(1, 67), rng.randint(1, 67)


def picture(rng: random.Random) -> bytes:
    """A picture that Pillow writes."""
    from PIL import Image, ImageFile

    ImageFile.MAXBLOCK = 1 << 24
    mode = rng.choice(["L", "RGB", "RGB", "RGB", "CMYK"])
    w, h = some_size(rng)
    c = len(mode) if mode != "L" else 1
    noise = np.random.default_rng(rng.getrandbits(32))
    y, x = np.mgrid[0:h, 0:w][..., None] * noise.random((2, 1, 1, c)) * 0.3
    match rng.randrange(4):
        case 0:
            array = noise.integers(0, 256, (h, w, c))
        case 1:
            array = 128 + 100 * np.sin(x + y) + noise.normal(0, 8, (h, w, c))
        case 2:
            array = noise.integers(0, 2, (h, w, c)) * 255
        case _:
            array = np.broadcast_to(noise.integers(0, 256, (1, 1, c)), (h, w, c)).copy()
            array[h // 2 :, w // 2 :] = noise.integers(0, 256, c)
    drawn = Image.frombytes(mode, (w, h), array.clip(0, 255).astype(np.uint8).tobytes())
    options: dict[str, Any] = {"quality": rng.randint(1, 100)}
    options |= {name: True for name in ("progressive", "optimize") if rng.random() < 0.5}
    if mode == "RGB":
        if rng.random() < 0.15:
            options["keep_rgb"] = True
        else:
            options["subsampling"] = rng.randrange(3)
    if rng.random() < 0.25:
        options["restart_marker_blocks"] = rng.randint(1, 9)
    if rng.random() < 0.15:
        most = rng.choice([5, 60, 255])
        options["qtables"] = [[rng.randint(1, most) for _ in range(64)] for _ in range(2)]
    file = io.BytesIO()
    drawn.save(file, "JPEG", **options)
    return file.getvalue()


def segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


@dataclass
class Huffman:
    """A table with all symbols that there may be, of codes of any length."""

    content: bytes
    codes: dict[int, tuple[int, int]]

    @staticmethod
    def at_random(rng: random.Random, symbols: list[int]) -> Huffman:
        symbols = rng.sample(symbols, len(symbols))
        counts, left, code = [], 1 << 16, 0
        codes: dict[int, tuple[int, int]] = {}
        for length in range(1, 17):
            unit = 1 << (16 - length)
            rest = len(symbols) - len(codes)
            most = min(rest, max(0, (left - rest - 1) // max(1, unit - 1)))
            n = rest if length == 16 else rng.randint(0, min(most, 60))
            counts.append(n)
            left -= n * unit
            for _ in range(n):
                codes[symbols[len(codes)]] = (code, length)
                code += 1
            code <<= 1
        return Huffman(bytes(counts) + bytes(symbols), codes)


class Bits:
    def __init__(self) -> None:
        self.text: list[str] = []

    def put(self, value: int, n: int) -> None:
        if n:
            self.text.append(format(value & ((1 << n) - 1), f"0{n}b"))

    def number(self, v: int, n: int) -> None:
        self.put(v if v >= 0 else v - 1, n)

    def code(self, table: Huffman, symbol: int) -> None:
        self.put(*table.codes[symbol])

    def done(self) -> bytes:
        text = "".join(self.text)
        text += "1" * (-len(text) % 8)
        self.text = []
        packed = int(text, 2).to_bytes(len(text) // 8, "big") if text else b""
        return packed.replace(b"\xff", b"\xff\x00")


@dataclass
class Component:
    id: int
    h: int
    v: int
    tq: int
    table: int
    across: int = 0  # blocks that count, in a row
    down: int = 0
    stride: int = 0
    blocks: list[list[int]] = field(default_factory=list)  # in zigzag order


@dataclass
class Scan:
    of: list[Component]
    first: int
    last: int
    high: int
    low: int


def bits_of(v: int) -> int:
    return abs(v).bit_length()


class Drawn:
    """Coefficients at random, and how they are stored."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.w, self.h = (
            some_size(rng) if rng.random() < 0.3 else (rng.randint(1, 40), rng.randint(1, 40))
        )
        n = rng.choice([1, 3, 3, 3, 4])
        self.progressive = rng.random() < 0.5
        ids = rng.choice([[1, 2, 3, 4], [82, 71, 66, 75], [0, 1, 2, 3], [9, 7, 200, 5]])
        while True:
            factors = [
                (rng.choice([1, 1, 2, 2, 3, 4]), rng.choice([1, 1, 2, 2, 3, 4])) for _ in range(n)
            ]
            if rng.random() < 0.5:  # as most have it
                factors[1:] = [(1, 1)] * (n - 1)
            self.max_h, self.max_v = max(h for h, _ in factors), max(v for _, v in factors)
            if all(self.max_h % h == 0 and self.max_v % v == 0 for h, v in factors):
                break
        self.components = [
            Component(ids[i], h, v, rng.randrange(2), rng.randrange(2))
            for i, (h, v) in enumerate(factors)
        ]
        self.mcus = (math.ceil(self.w / 8 / self.max_h), math.ceil(self.h / 8 / self.max_v))
        kind = rng.choice(["few", "few", "many", "large", "wild"])
        largest = {"few": 40, "many": 60, "large": 1023, "wild": 32767}[kind]
        deep = kind != "few" and rng.random() < 0.3
        most = rng.choice([1, 8, 60, 255, 65535 if deep else 255])
        self.quants = [[rng.randint(1, most) for _ in range(64)] for _ in range(2)]
        self.deep = deep
        for c in self.components:
            if n == 1:
                wide, high = self.w, self.h
            else:
                wide, high = -(-self.w * c.h // self.max_h), -(-self.h * c.v // self.max_v)
            c.across, c.down = -(-wide // 8), -(-high // 8)
            c.stride = self.mcus[0] * c.h if n > 1 else c.across
            rows = self.mcus[1] * c.v if n > 1 else c.down
            for _ in range(c.stride * rows):
                block = [0] * 64
                block[0] = rng.randint(-largest, largest) if rng.random() < 0.8 else 0
                if rng.random() < 0.8:
                    last = rng.choice([1, 5, 9, 15, 30, 63])
                    for _ in range(rng.randint(0, {"few": 6, "many": 60}.get(kind, 12))):
                        block[rng.randint(1, last)] = rng.randint(-largest, largest)
                c.blocks.append(block)
        dc, ac = (
            list(range(16)),
            [s for s in range(256) if s & 15 or s == 0xF0 or s == 0 or self.progressive],
        )
        self.huffman = [
            [Huffman.at_random(rng, dc) for _ in range(2)],
            [Huffman.at_random(rng, ac) for _ in range(2)],
        ]
        self.interval = rng.choice([0, 0, 0, 1, 2, 7])

    def interleaved(self, of: list[Component]) -> bool:
        return len(of) == 1 or sum(c.h * c.v for c in of) <= 10

    def groups(self) -> list[list[Component]]:
        """The components of the scans that may have several."""
        order = list(self.components)
        if self.interleaved(order) and self.rng.random() < 0.6:
            return [order]
        if len(order) > 2 and self.interleaved(order[1:]) and self.rng.random() < 0.5:
            groups = [order[:1], order[1:]]
        else:
            groups = [[c] for c in order]
        self.rng.shuffle(groups)
        return groups

    def scans(self) -> list[Scan]:
        if not self.progressive:
            return [Scan(of, 0, 63, 0, 0) for of in self.groups()]
        scans = []
        low = self.rng.choice([0, 1, 2])
        scans += [Scan(of, 0, 0, 0, low) for of in self.groups()]
        later: list[list[Scan]] = [
            [Scan(of, 0, 0, bit + 1, bit) for bit in reversed(range(low)) for of in self.groups()]
        ]
        for c in self.components:
            cuts = sorted(
                {1, 64, *(self.rng.randint(1, 64) for _ in range(self.rng.randint(0, 3)))}
            )
            for first, end in itertools.pairwise(cuts):
                low = self.rng.choice([0, 0, 1, 2])
                later.append([Scan([c], first, end - 1, 0, low)])
                later[-1] += [
                    Scan([c], first, end - 1, bit + 1, bit) for bit in reversed(range(low))
                ]
        while later := [queue for queue in later if queue]:
            scans.append(self.rng.choice(later).pop(0))
        return scans

    def blocks(self, of: list[Component]) -> list[list[tuple[Component, int]]]:
        """The blocks of each MCU of a scan."""
        if len(of) == 1:
            c = of[0]
            return [[(c, y * c.stride + x)] for y in range(c.down) for x in range(c.across)]
        return [
            [
                (c, (my * c.v + y) * c.stride + mx * c.h + x)
                for c in of
                for y in range(c.v)
                for x in range(c.h)
            ]
            for my in range(self.mcus[1])
            for mx in range(self.mcus[0])
        ]

    def data(self, scan: Scan) -> bytes:
        out, coded, run, marker = Bits(), b"", 0, 0
        before: dict[int, int] = {}

        def end(table: Huffman) -> None:
            nonlocal run
            while run:
                n = min(run, 32767)
                size = n.bit_length() - 1
                out.code(table, size << 4)
                out.put(n, size)
                run -= n

        for i, mcu in enumerate(self.blocks(scan.of)):
            if self.interval and i and i % self.interval == 0:
                end(self.huffman[1][scan.of[0].table])
                coded += out.done() + bytes([0xFF, 0xD0 + marker % 8])
                marker += 1
                before = {}
            for c, at in mcu:
                block = c.blocks[at]
                dc, ac = self.huffman[0][c.table], self.huffman[1][c.table]
                if scan.first == 0:
                    v = block[0] >> scan.low
                    if scan.high:
                        out.put(v, 1)
                        continue
                    step = v - before.get(c.id, 0)
                    if bits_of(step) > 15:  # which has no code
                        step = 0
                        block[0] = before.get(c.id, 0) << scan.low
                    before[c.id] = before.get(c.id, 0) + step
                    out.code(dc, bits_of(step))
                    out.number(step, bits_of(step))
                    if self.progressive:
                        continue
                first = max(1, scan.first)
                values = [int(v / (1 << scan.low)) for v in block]
                fresh = [
                    k
                    for k in range(first, scan.last + 1)
                    if values[k] and (not scan.high or abs(values[k]) == 1)
                ]
                if scan.high == 0 and self.progressive and not fresh:
                    run += 1
                    continue
                end(ac)
                k, zeros, corrections = first, 0, []
                last = fresh[-1] if fresh else 0
                while k <= last:
                    v = values[k]
                    if scan.high and abs(v) > 1:
                        corrections.append(abs(v) & 1)
                    elif v == 0:
                        zeros += 1
                        if zeros == 16:
                            # Those that follow it belong to what comes next.
                            out.code(ac, 0xF0)
                            for bit in corrections:
                                out.put(bit, 1)
                            zeros, corrections = 0, []
                    else:
                        size = bits_of(v)
                        out.code(ac, zeros << 4 | size)
                        if scan.high:
                            out.put(v > 0, 1)
                            for bit in corrections:
                                out.put(bit, 1)
                        else:
                            out.number(v, size)
                        zeros, corrections = 0, []
                    k += 1
                if k <= scan.last:
                    out.code(ac, 0)
                    if scan.high:
                        for bit in [
                            abs(values[j]) & 1
                            for j in range(k, scan.last + 1)
                            if abs(values[j]) > 1
                        ]:
                            out.put(bit, 1)
        end(self.huffman[1][scan.of[0].table])
        return coded + out.done()

    def encoded(self) -> bytes:
        rng = self.rng
        scans = self.scans()
        head = [
            segment(0xDB, b"".join(
                bytes([i | self.deep << 4]) + struct.pack(">64H" if self.deep else ">64B", *table)
                for i, table in enumerate(self.quants)
            )),
            segment(0xC4, b"".join(
                bytes([kind << 4 | i]) + table.content
                for kind, tables in enumerate(self.huffman)
                for i, table in enumerate(tables)
            )),
            segment(0xFE, b"a comment"),
        ]  # fmt: skip
        if self.interval:
            head.append(segment(0xDD, struct.pack(">H", self.interval)))
        if rng.random() < 0.4:
            head.append(segment(0xE0, b"JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"))
        if rng.random() < 0.4:
            head.append(segment(0xEE, b"Adobe\x00\x64\x00\x00\x00\x00" + bytes([rng.randrange(3)])))
        kind = 0xC2 if self.progressive else rng.choice([0xC0, 0xC1])
        frame = struct.pack(">BHHB", 8, self.h, self.w, len(self.components))
        frame += b"".join(bytes([c.id, c.h << 4 | c.v, c.tq]) for c in self.components)
        head.append(segment(kind, frame))
        rng.shuffle(head)
        coded = b"\xff\xd8" + b"".join(head)
        for scan in scans:
            header = bytes([len(scan.of)]) + b"".join(
                bytes([c.id, c.table << 4 | c.table]) for c in scan.of
            )
            coded += segment(
                0xDA, header + bytes([scan.first, scan.last, scan.high << 4 | scan.low])
            )
            coded += self.data(scan)
            if rng.random() < 0.1:
                coded += b"\xff\xff"  # fills up
        return coded + b"\xff\xd9"


def some(seed: int) -> bytes:
    """A JPEG, told by its seed."""
    rng = random.Random(seed)
    return picture(rng) if seed % 2 else Drawn(rng).encoded()


def archive(to: Any, seeds: range) -> int:
    """Writes JPEGs to a zip file, with sums of Pillow's pixels in sums.txt; says how many."""
    sums = []
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as file:
        for seed in seeds:
            encoded = some(seed)
            w, h, channels, decoded = pixels(encoded)
            sums.append(f"{seed}.jpg {w} {h} {channels} {hashlib.sha256(decoded).hexdigest()}\n")
            file.writestr(zipfile.ZipInfo(f"{seed}.jpg"), encoded)
        file.writestr(zipfile.ZipInfo("sums.txt"), "".join(sums))
    return len(sums)


if __name__ == "__main__":
    TESTDATA.parent.mkdir(exist_ok=True)
    print(archive(TESTDATA, range(160)), "pictures,", TESTDATA.stat().st_size, "bytes")
