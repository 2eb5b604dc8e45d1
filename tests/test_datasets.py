"""What gotorch/data reads is what Python reads: NumPy, Pillow, pyarrow, and Python's own csv and tarfile.

Pillow and pyarrow need not be installed: their tests say so then, and the Go tests have files that they wrote
(tests/make_datasets_golden.py). CONFORMANCE=full tries twenty times as many files at random.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
import pickle
import random
import re
import string
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest

from pytorch_bridge.testing.gotests import run_go

TIMES = 20 if os.environ.get("CONFORMANCE") == "full" else 1

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


@pytest.fixture(scope="module")
def read(library, tmp_path_factory):
    """Runs tests/datasets, a Go program that reads files and writes what they hold."""
    program = tmp_path_factory.mktemp("bin") / "datasets"
    built = run_go("build", "-buildvcs=false", "-o", str(program), "./tests/datasets")
    assert built.returncode == 0, built.stderr

    def run(what: str, source: Path | str, target: Path) -> None:
        done = subprocess.run([program, what, source, target], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


@pytest.fixture
def folders(tmp_path):
    source, target = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    target.mkdir()
    return source, target


def some_array(rng: np.random.Generator) -> np.ndarray:
    shape = tuple(int(n) for n in rng.choice([0, 1, 2, 3, 5, 17], size=rng.integers(0, 5)))
    dtype = np.dtype(str(rng.choice(DTYPES)))
    n = math.prod(shape)
    if dtype.kind == "b":
        array = rng.integers(0, 2, n).astype(bool)
    else:
        array = np.frombuffer(rng.bytes(n * dtype.itemsize), dtype)
    array = array.reshape(shape)
    if rng.integers(2):
        array = array.astype(dtype.newbyteorder(">"))
    if rng.integers(2):
        array = np.asfortranarray(array)
    return array


def saved(array: np.ndarray, save=np.save) -> bytes:
    file = io.BytesIO()
    save(file, array)
    return file.getvalue()


def test_npy_goes_both_ways_to_the_last_byte(read, folders):
    source, target = folders
    rng = np.random.default_rng(1)
    arrays = [some_array(rng) for _ in range(200 * TIMES)]
    for i, array in enumerate(arrays):
        version = (1, 0) if i % 3 else ((2, 0) if i % 2 else (3, 0))
        with open(source / f"{i}.npy", "wb") as file:
            np.lib.format.write_array(file, array, version=version)
    read("npy", source, target)
    for i, array in enumerate(arrays):
        want = saved(array.astype(array.dtype.newbyteorder("=")))
        assert (target / f"{i}.npy").read_bytes() == want, array.dtype


def test_npz_goes_both_ways(read, folders):
    source, target = folders
    rng = np.random.default_rng(2)
    files = {}
    for i in range(10 * TIMES):
        packed = i % 2 == 0
        name = f"{i}{'packed' if packed else ''}.npz"
        files[name] = {f"a{k}/b": some_array(rng) for k in range(i % 5)}
        (np.savez_compressed if packed else np.savez)(source / name, **files[name])
    read("npz", source, target)
    for name, arrays in files.items():
        with np.load(target / name) as got:
            assert sorted(got.files) == sorted(arrays)
            for key, array in arrays.items():
                assert got[key].dtype == array.dtype.newbyteorder("=")
                assert saved(got[key]) == saved(array.astype(got[key].dtype))


def test_windows_of_tokens_are_nanogpts(read, folders):
    source, target = folders
    text = np.random.default_rng(3).integers(0, 2**16, 1000).astype(np.uint16)
    (source / "tokens").write_bytes(b"header" + text.tobytes())
    read("tokens", source / "tokens", target)
    starts = range(len(text) - 16)  # those of torch.randint(len(data) - block_size, ...)
    want = np.stack([text[i : i + 16] for i in starts]).astype(np.int64)
    assert np.array_equal(np.load(target / "input.npy"), want)
    want = np.stack([text[i + 1 : i + 17] for i in starts]).astype(np.int64)
    assert np.array_equal(np.load(target / "target.npy"), want)


def test_lines_are_those_of_splitting_at_newlines(read, folders):
    source, target = folders
    rng = random.Random(4)
    ends = ["\n", "\r\n", "\n\n", "", "\r"]
    for i in range(5 * TIMES):
        text = "".join(
            "".join(rng.choices("abcé😀 \t", k=rng.choice([0, 1, 3, 80, 700]))) + rng.choice(ends)
            for _ in range(rng.choice([0, 1, 100]))
        )
        path = source / f"{i}.txt"
        path.write_bytes(text.encode())
        (source / f"{i}.txt.gz").write_bytes(gzip.compress(text.encode()))
        read("lines", path, target / "lines.json")
        at, streamed = json.loads((target / "lines.json").read_text())
        want = text.split("\n")
        if not want[-1]:
            del want[-1]
        want = [line.removesuffix("\r") for line in want]
        assert at == want
        assert streamed == want + want


def some_csv(rng: random.Random, path: Path) -> tuple[list, list]:
    """A table, and its columns as numbers, by Python's csv."""
    names = ["a", "b, c", 'd"e', "é", "kind"]
    kinds = ["no", "yes, so", "may\nbe"]
    with open(path, "w", newline="") as file:
        table = csv.writer(
            file,
            quoting=rng.choice([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
            lineterminator=rng.choice(["\n", "\r\n"]),
        )
        table.writerow(names)
        for _ in range(rng.choice([0, 1, 50, 300])):
            numbers = [
                rng.choice(
                    [
                        str(rng.randint(-(2**40), 2**40)),
                        str(rng.randint(-(2**63), 2**64 - 1)),
                        repr(rng.gauss(0, 1e10)),
                        "1e-3",
                        " 7 ",
                        "inf",
                        "1e400",
                    ]
                )
                for _ in names[:-1]
            ]
            if rng.random() < 0.2:
                numbers[1] = rng.choice(["", "NA", "nan"])
            table.writerow([*numbers, rng.choice(kinds)])
    spec = {
        "Inputs": [{"Name": "é"}, {"Name": "b, c", "Missing": -1.5}, {"Name": "a"}],
        "Targets": [{"Name": "kind", "Classes": kinds}],
        "InputDType": rng.choice(["float32", "float64"]),
        "TargetDType": "int64",
    }
    Path(f"{path}.json").write_text(json.dumps(spec))
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    missing = {"", "NA", "nan"}

    def number(text: str) -> np.floating:
        """An integer is rounded once, as NumPy rounds those of its own types."""
        try:
            n = int(text)
        except ValueError:
            return np.float64(text).astype(spec["InputDType"])
        return np.array(n, np.int64 if n < 2**63 else np.uint64).astype(spec["InputDType"])[()]

    with np.errstate(over="ignore"):
        inputs = [
            [number("-1.5" if r[c] in missing else r[c]) for c in ("é", "b, c", "a")] for r in rows
        ]
        x = np.array(inputs, spec["InputDType"]).reshape(-1, 3)
    return x, np.array([kinds.index(r["kind"]) for r in rows], np.int64)


def test_csv_is_what_python_reads(read, folders):
    source, target = folders
    rng = random.Random(5)
    want = {}
    for i in range(20 * TIMES):
        want[f"{i}.csv"] = some_csv(rng, source / f"{i}.csv")
    read("csv", source, target)
    for name, (inputs, targets) in want.items():
        got = np.load(target / f"{name}.input.npy")
        assert got.dtype == inputs.dtype
        assert np.array_equal(got[::-1], inputs)
        assert np.array_equal(np.load(target / f"{name}.target.npy")[::-1], targets)


def test_parquet_is_what_pyarrow_writes(read, folders):
    pa = pytest.importorskip("pyarrow", reason="which writes the tables")
    pq = pytest.importorskip("pyarrow.parquet", reason="which writes the tables")
    source, target = folders
    rng = np.random.default_rng(6)
    numbers = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
    want = {}
    for i in range(20 * TIMES):
        n = int(rng.choice([0, 1, 100, 3000]))
        columns, inputs, layout = {}, [], []
        dtype = str(rng.choice(["float64", "float32", "int64"]))
        kinds = numbers[:-1] if dtype == "int64" else [*numbers, "float32", "float64"]
        for k in range(int(rng.integers(1, 6))):
            kind = str(rng.choice([*kinds, "bool"]))
            if kind == "bool":
                values = rng.integers(0, 2, n).astype(bool)
            elif kind.startswith("float"):
                values = rng.standard_normal(n).astype(kind)
            else:
                info = np.iinfo(kind)
                values = rng.integers(info.min, info.max, n, dtype=kind, endpoint=True)
            mask = rng.random(n) < rng.choice([0.0, 0.3])
            columns[f"c{k}"] = pa.array(values, mask=mask)
            inputs.append(np.where(mask, np.array(-3, dtype), values.astype(dtype)))
            layout.append({"Name": f"c{k}", "Missing": -3})
        names = ["a", "b", "ö"]
        classes = rng.integers(0, 3, n)
        columns["unused"] = pa.array([[1, 2]] * n, pa.list_(pa.int64()))
        columns["kind"] = pa.array([names[c] for c in classes], pa.string())
        dictionary, encodings = bool(rng.integers(2)), None
        if not dictionary:
            texts = ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"]
            encodings = {"kind": str(rng.choice(texts))}
            for name in sorted(columns.keys() - {"unused", "kind"}):
                kind = columns[name].type
                kinds = ["PLAIN", "RLE" if pa.types.is_boolean(kind) else "BYTE_STREAM_SPLIT"]
                kinds += ["DELTA_BINARY_PACKED"] * pa.types.is_integer(kind)
                encodings[name] = str(rng.choice(kinds))
        pq.write_table(
            pa.table(columns),
            source / f"{i}.parquet",
            row_group_size=int(rng.choice([7, 1000, 5000])),
            compression=str(rng.choice(["none", "snappy", "gzip", "zstd", "brotli", "lz4"])),
            use_dictionary=dictionary,
            column_encoding=encodings,
            data_page_version=str(rng.choice(["1.0", "2.0"])),
            data_page_size=int(rng.choice([64, 1 << 20])),
        )
        spec = {
            "Inputs": layout,
            "Targets": [{"Name": "kind", "Classes": names}],
            "InputDType": dtype,
            "TargetDType": "int64",
        }
        (source / f"{i}.parquet.json").write_text(json.dumps(spec))
        want[f"{i}.parquet"] = np.stack(inputs, 1), classes
    read("parquet", source, target)
    for name, (inputs, targets) in want.items():
        assert np.array_equal(np.load(target / f"{name}.input.npy")[::-1], inputs), name
        assert np.array_equal(np.load(target / f"{name}.target.npy")[::-1], targets)


def some_tables(rng: np.random.Generator, n: int):
    """Columns of the types that are no plain numbers: pyarrow's, what they are in a CSV, the layout's, and the numbers."""
    import datetime
    import decimal

    import pyarrow as pa

    def nulls(values, missing):
        mask = rng.random(n) < rng.choice([0.0, 0.3])
        return [None if m else v for m, v in zip(mask, values, strict=True)], mask, missing

    def column(name, kind, values, number, size=0, csv=str, **options):
        values, mask, missing = nulls(values, -3.0)
        missing = [missing] * size if size else missing
        want = np.array(
            [missing if m else number(v) for m, v in zip(mask, values, strict=True)], np.float64
        )
        text = ["" if v is None else csv(v) for v in values]
        if name == "written":
            values = [None if v is None else str(v) for v in values]
        spec = {"Name": name, "Missing": -3, "Size": size, **options}
        return name, pa.array(values, kind), text, spec, want.reshape(n, max(size, 1))

    epoch = datetime.datetime(1970, 1, 1)
    second, day = 10**9, 86400 * 10**9
    digits = int(rng.integers(1, 38))
    scale = int(rng.integers(0, digits + 1))
    unscaled = [
        "-"[: rng.integers(2)] + "".join(map(str, rng.integers(0, 10, digits))) for _ in range(n)
    ]
    decimals = [decimal.Decimal(u).scaleb(-scale, decimal.Context(prec=80)) for u in unscaled]
    halves = [rng.bytes(2) for _ in range(n)]
    halves = [np.frombuffer(h, np.float16)[0] for h in halves]
    halves = [h if np.isfinite(h) else np.float16(1) for h in halves]
    seconds = [int(s) for s in rng.integers(-(2**33), 2**33, n)]
    dates = [epoch.date() + datetime.timedelta(s // 86400) for s in seconds]
    times = [epoch + datetime.timedelta(seconds=s) for s in seconds]
    unit = str(rng.choice(["s", "ms", "us", "ns"]))
    clock = [(epoch + datetime.timedelta(seconds=s % 86400)).time() for s in seconds]
    names = ["red", "green", "blue, dark", "ö"]
    kinds = [names[k] for k in rng.integers(0, 4, n)]
    size = int(rng.integers(1, 5))
    fixed = [[float(np.float32(f)) for f in rng.standard_normal(size)] for _ in range(n)]
    ragged = [
        [
            None if rng.random() < 0.2 else int(k)
            for k in rng.integers(-9, 9, rng.integers(0, size + 1))
        ]
        for _ in range(n)
    ]
    words = [[names[k] for k in rng.integers(0, 4, size)] for _ in range(n)]
    padded = lambda v: [-3 if k is None else k for k in v] + [-5] * (size - len(v))  # noqa: E731
    known = lambda v: names.index(v) if v in names[:3] else -1  # noqa: E731
    since = lambda t: (t - epoch).total_seconds()  # noqa: E731
    return [
        column("decimal", pa.decimal128(38, scale) if rng.integers(2) else pa.decimal256(60, scale), decimals, float),
        column("short", pa.decimal128(9, 2), [decimal.Decimal(s % 10**9).scaleb(-2) for s in seconds], float),
        column("half", pa.float16(), halves, float, csv=lambda h: str(float(h))),
        column("date", pa.date32(), dates, lambda d: (d - epoch.date()).days, Unit=day),
        column("date64", pa.date64(), dates, lambda d: (d - epoch.date()).days * 24, Unit=day // 24),
        column("time", pa.timestamp(unit), times, lambda t: since(t), Unit=second),
        column("zone", pa.timestamp(unit, "Europe/Paris"), times, lambda t: since(t) * 1000, Unit=second // 1000,
               csv=lambda t: t.strftime("%Y-%m-%dT%H:%M:%S+00:00")),
        column("clock", pa.time32("s"), clock, lambda t: t.hour * 60 + t.minute + t.second / 60, Unit=60 * second),
        column("written", pa.string(), times, lambda t: since(t), Unit=second),
        column("kind", pa.dictionary(pa.int32(), pa.string()), kinds, known, Classes=names[:3], Unknown=-1),
        column("year", pa.int16(), [1970 + s % 4 for s in seconds], lambda y: y - 1970 if y < 1973 else -1,
               Classes=["1970", "1971", "1972"], Unknown=-1),
        column("fixed", pa.list_(pa.float32(), size) if rng.integers(2) else pa.large_list(pa.float32()), fixed, list, size,
               csv=lambda v: str(v) if rng.integers(2) else " ".join(map(str, v))),
        column("ragged", pa.list_(pa.int64()), ragged, padded, size, csv=lambda v: str(v) if rng.integers(2) else json.dumps(v), Pad=-5),
        column("words", pa.list_(pa.string()), words, lambda v: [known(w) for w in v], size, csv=str, Classes=names[:3], Unknown=-1),
        column("matrix", pa.list_(pa.list_(pa.float64(), 2), size), [[[f, -f] for f in v] for v in fixed],
               lambda v: np.array(v).ravel().tolist(), 2 * size),
    ]  # fmt: skip


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_columns_of_every_type_are_what_python_has(read, folders, ending):
    pa = pytest.importorskip("pyarrow", reason="which writes the tables")
    pq = pytest.importorskip("pyarrow.parquet", reason="which writes the tables")
    source, target = folders
    rng = np.random.default_rng(9)
    want = {}
    for i in range(20 * TIMES):
        n = int(rng.choice([1, 50, 1500]))
        columns = some_tables(rng, n)
        if ending == "csv":
            with open(source / f"{i}.csv", "w", newline="") as file:
                lines = csv.writer(file)
                lines.writerow([c[0] for c in columns])
                lines.writerows(zip(*(c[2] for c in columns), strict=True))
        else:
            arrays = {c[0]: c[1] for c in columns}
            # Half of them lie in a struct, or in structs of a struct.
            within = [c for c in columns if rng.integers(2)]
            for c in within:
                path = str(rng.choice(["s", "s.t"]))
                c[3]["Name"] = f"{path}.{c[0]}"
            struct = {c[0]: arrays.pop(c[0]) for c in within if c[3]["Name"].count(".") == 1}
            inner = {c[0]: arrays.pop(c[0]) for c in within if c[3]["Name"].count(".") == 2}
            if inner:
                struct["t"] = pa.StructArray.from_arrays([*inner.values()], [*inner])
            if struct:
                arrays["s"] = pa.StructArray.from_arrays([*struct.values()], [*struct])
            pq.write_table(
                pa.table(arrays),
                source / f"{i}.parquet",
                row_group_size=int(rng.choice([7, 1000, 5000])),
                compression=str(rng.choice(["none", "snappy", "zstd"])),
                use_dictionary=bool(rng.integers(2)),
                use_deprecated_int96_timestamps=bool(rng.integers(2)),
                store_decimal_as_integer=bool(rng.integers(2)),
                data_page_version=str(rng.choice(["1.0", "2.0"])),
                data_page_size=int(rng.choice([64, 1 << 20])),
            )
        spec = {"Inputs": [c[3] for c in columns], "Targets": [{**columns[2][3]}]}
        spec |= {"InputDType": "float64", "TargetDType": "float32"}
        (source / f"{i}.{ending}.json").write_text(json.dumps(spec))
        want[f"{i}.{ending}"] = columns
    read(ending, source, target)
    for name, columns in want.items():
        got = np.load(target / f"{name}.input.npy")[::-1]
        at = 0
        for c in columns:
            size = c[4].shape[1]
            assert np.array_equal(got[:, at : at + size], c[4]), (name, c[3])
            at += size
        assert np.array_equal(np.load(target / f"{name}.target.npy")[::-1], columns[2][4][:, 0])


def rgb(picture) -> np.ndarray:
    return np.asarray(picture.convert("RGB")).transpose(2, 0, 1)


def test_pictures_are_what_pillow_decodes(read, folders):
    Image = pytest.importorskip("PIL.Image", reason="which writes the pictures")
    source, target = folders
    rng = np.random.default_rng(7)
    modes = {
        "png": ["1", "L", "LA", "P", "RGB", "RGBA"], "gif": ["L", "P"], "bmp": ["1", "L", "P", "RGB"],
        "tiff": ["L", "RGB", "RGBA"], "ppm": ["1", "L", "RGB"], "webp": ["RGB", "RGBA"],
        "jpeg": ["L", "RGB", "CMYK"],
    }  # fmt: skip
    want = {}
    for i in range(3 * TIMES):
        for ending, kinds in modes.items():
            for mode in kinds:
                h, w = (int(n) for n in rng.choice([1, 2, 7, 8, 33, 100], 2))
                noise = rng.integers(0, 256, (h, w, 4), np.uint8)
                picture = Image.fromarray(noise, "RGBA")
                if mode == "P":
                    picture = picture.convert("RGB").quantize(int(rng.integers(2, 256)))
                elif mode == "CMYK":
                    picture = picture.convert("RGB").convert("CMYK")
                else:
                    picture = picture.convert(mode)
                name = f"{i}_{mode}.{ending}"
                options = {"webp": {"lossless": True, "exact": True}}.get(ending, {})
                if ending == "jpeg":
                    options = {"quality": int(rng.integers(1, 101)), "progressive": bool(i % 2)}
                picture.save(source / name, **options)
                want[name] = rgb(Image.open(source / name))
    read("images", source, target)
    for name, pixels in want.items():
        got = np.load(target / f"{name}.npy")
        assert got.dtype == np.uint8
        assert got.shape == pixels.shape, name
        assert np.array_equal(got, pixels), name


def test_pictures_of_every_kind_are_read_or_unsupported(read, folders):
    """A whole picture is never said to be damaged."""
    Image = pytest.importorskip("PIL.Image", reason="which writes the pictures")
    source, target = folders
    rng = np.random.default_rng(10)
    noise = Image.fromarray(rng.integers(0, 256, (16, 24, 3), np.uint8), "RGB")
    deep = Image.fromarray(rng.integers(0, 1 << 16, (16, 24), np.uint16))
    modes = ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "I", "F", "HSV"]
    pictures = {m: noise.convert("P" if m == "PA" else m).convert(m) for m in modes} | {
        "I;16": deep
    }
    packed = [None, "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg", "group4", "lzma", "zstd"]
    ways = [("tiff", {"compression": p}) for p in packed] + [("tiff", {"big_tiff": True})]
    ways += [
        (kind, {})
        for kind in ("png", "bmp", "gif", "jpeg", "webp", "ppm", "ico", "jpeg2000", "avif")
    ]
    ways += [
        (kind, {"save_all": True, "append_images": [noise] * 2})
        for kind in ("webp", "png", "gif", "tiff")
    ]
    for mode, picture in pictures.items():
        for k, (kind, options) in enumerate(ways):
            path = source / f"{mode.replace(';', '')}_{k}.{kind}"
            try:
                picture.save(path, format=kind, **options)
            except (OSError, ValueError, KeyError, RuntimeError):  # what Pillow does not write
                path.unlink(missing_ok=True)
    read("kinds", source, target)
    said = json.loads((target / "kinds.json").read_text())
    assert len(said) > 100
    for name, error in said.items():
        assert re.search("^$|cannot be read|known format", error), (name, error)
    read_kinds = {name.rsplit(".")[-1] for name, error in said.items() if error == ""}
    assert read_kinds == {"tiff", "png", "bmp", "gif", "jpeg", "webp", "ppm"}


def test_photographs_are_turned_as_pillow_turns_them(read, folders):
    Image = pytest.importorskip("PIL.Image", reason="which writes the pictures")
    ImageOps = pytest.importorskip("PIL.ImageOps", reason="which turns the pictures")
    source, target = folders
    pixels = np.random.default_rng(8).integers(0, 256, (5, 9, 3), np.uint8)
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x112] = orientation
        for ending in ("png", "jpeg"):
            path = source / f"{orientation}.{ending}"
            Image.fromarray(pixels).save(path, exif=exif)
    for what in ("images", "oriented"):
        read(what, source, target)
        for path in source.iterdir():
            picture = Image.open(path)
            want = rgb(ImageOps.exif_transpose(picture) if what == "oriented" else picture)
            got = np.load(target / f"{path.name}.npy")
            assert np.array_equal(got, want), path


def test_folders_are_in_torchvisions_order(read, tmp_path):
    rng = random.Random(9)
    top = tmp_path / "top"
    endings = [".jpg", ".JPEG", ".png", ".gif", ".txt", "", ".webp", ".tif"]
    for _ in range(120):
        parts = ["".join(rng.choices("ab-/.é", k=rng.randint(1, 4))) for _ in range(3)]
        folder = top / "".join(f"/x{p}" for p in parts).strip("/").replace("..", ".")
        folder.mkdir(parents=True, exist_ok=True)
        name = rng.choice(string.ascii_letters) + rng.choice(endings)
        if not (folder / name).exists():
            (folder / name).write_bytes(b"")
    (top / "linked").symlink_to(next(d for d in top.iterdir() if d.is_dir()))
    (top / "file.jpg").write_bytes(b"")
    read("folder", top, tmp_path / "folder.json")
    got = json.loads((tmp_path / "folder.json").read_text())
    # What torchvision.datasets.ImageFolder does.
    classes = sorted(entry.name for entry in os.scandir(top) if entry.is_dir())
    samples = []
    taken = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
    for i, name in enumerate(classes):
        for root, _, names in sorted(os.walk(top / name, followlinks=True)):
            for file in sorted(names):
                if file.lower().endswith(taken):
                    samples.append({"Path": os.path.join(root, file), "Class": i})
    assert got["classes"] == classes
    assert got["samples"] == samples


def test_samples_of_archives_are_webdatasets(read, tmp_path):
    rng = random.Random(10)
    want = []
    for shard in range(3):
        path = tmp_path / f"s-{shard:03d}.tar"
        with tarfile.open(path, "w", format=rng.choice([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])) as archive:  # fmt: skip
            for i in range(40):
                # A key with a dot in its folder, a name of more than 100 bytes, fields with dots.
                folder = rng.choice(["", "a.b/", "./x/", "d" * 120 + "/"])
                key, fields = f"{folder}{i}", {}
                for name in rng.sample(["JPG", "cls", "seg.png", "json", "a.b.c"], rng.randint(1, 4)):  # fmt: skip
                    content = rng.randbytes(rng.choice([0, 1, 511, 512, 2000]))
                    info = tarfile.TarInfo(f"{key}.{name}")
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))
                    fields[name.lower()] = content.hex()
                want.append([path.name, key, fields])
                if rng.random() < 0.2:  # what belongs to no sample
                    archive.addfile(tarfile.TarInfo(rng.choice(["README", ".hidden", "__meta__/x.txt"])))  # fmt: skip
    read("webdataset", f"{tmp_path}/s-{{000..002}}.tar", tmp_path / "got.json")
    assert json.loads((tmp_path / "got.json").read_text()) == want


def test_braces_are_expanded_as_bash_does(read, tmp_path):
    patterns = [
        "a", "x-{000..012}.tar", "x-{8..11}", "{a,b}-{1..3}", "{a,b{1..2},c}z", "{5..1}", "{0..10..5}",
        "{a..e}", "{a..e..2}", "x{,y}", "{-2..2}", "{01..3}", "a{b}c", "{x}{1..2}", "{e..a}", "{-01..1}",
    ]  # fmt: skip
    (tmp_path / "patterns").write_text("\n".join(patterns))
    read("expand", tmp_path / "patterns", tmp_path / "got.json")
    got = json.loads((tmp_path / "got.json").read_text())
    for pattern, paths in zip(patterns, got, strict=True):
        # An empty word disappears in bash, which therefore gets something in front.
        done = subprocess.run(["bash", "-c", f"echo {pattern}"], capture_output=True, text=True)
        assert paths == done.stdout.split(), pattern


def python2_pickle(data: np.ndarray, fields: dict[str, list[int]]) -> bytes:
    """A batch as it is distributed: by Python 2, in protocol 2, with a string for the pixels."""

    def text(s: str) -> bytes:
        return b"U" + bytes([len(s)]) + s.encode()

    def number(n: int) -> bytes:
        return b"J" + n.to_bytes(4, "little", signed=True)

    raw = data.tobytes()
    out = b"\x80\x02}q\x01(" + text("batch_label") + text("a batch")
    for name, labels in fields.items():
        out += text(name) + b"](" + b"".join(b"K" + bytes([n]) for n in labels) + b"e"
    out += text("data") + b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85"
    out += text("b") + b"\x87R(K\x01" + number(len(data)) + number(data.shape[1]) + b"\x86"
    out += b"cnumpy\ndtype\n" + text("u1") + b"K\x00K\x01\x87R(K\x03" + text("|") + b"NNN"
    out += number(-1) * 2 + b"K\x00tb\x89T" + len(raw).to_bytes(4, "little") + raw + b"tbu."
    assert np.array_equal(pickle.loads(out, encoding="latin1")["data"], data)
    return out


@pytest.mark.parametrize("hundred", [False, True])
@pytest.mark.parametrize("version", ["binary", "python2", "python3"])
def test_cifar_is_read_in_every_form(read, folders, version, hundred):
    source, target = folders
    rng = np.random.default_rng(11)
    parts = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    if hundred:
        parts = ["train", "test"]
    batches = []
    for name in parts:
        data = rng.integers(0, 256, (3, 3072), np.uint8)
        labels = [int(n) for n in rng.integers(0, 100 if hundred else 10, 3)]
        coarse = [int(n) for n in rng.integers(0, 20, 3)]
        batches.append((data, labels))
        fields = {"fine_labels": labels, "coarse_labels": coarse} if hundred else {"labels": labels}
        if version == "binary":
            rows = [
                bytes([c, n] if hundred else [n]) + row.tobytes()
                for c, n, row in zip(coarse, labels, data, strict=True)
            ]
            (source / f"{name}.bin").write_bytes(b"".join(rows))
        elif version == "python2":
            (source / name).write_bytes(python2_pickle(data, fields))
        else:
            (source / name).write_bytes(pickle.dumps({"data": data, **fields}, protocol=2))
    names = [f"class{i}" for i in range(100 if hundred else 10)]
    if version == "binary":
        file = "fine_label_names.txt" if hundred else "batches.meta.txt"
        (source / file).write_text("\n".join(names) + "\n\n")
    else:
        meta = {"label_names": names}
        if hundred:
            meta = {"fine_label_names": names, "coarse_label_names": [str(i) for i in range(20)]}
        (source / ("meta" if hundred else "batches.meta")).write_bytes(pickle.dumps(meta, 2))
    archive = target / "cifar.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(source, "cifar")
    for form in (source, archive):
        read("cifar", form, target)
        train = batches[:-1]
        want = np.concatenate([d for d, _ in train]).reshape(-1, 3, 32, 32)
        assert np.array_equal(np.load(target / "train_pictures.npy"), want)
        labels = [label for _, numbers in train for label in numbers]
        assert np.load(target / "train_labels.npy").tolist() == labels
        assert np.load(target / "test_labels.npy").tolist() == batches[-1][1]
        assert json.loads((target / "classes.json").read_text()) == names
