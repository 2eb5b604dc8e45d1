"""Writes the files in gotorch/data/*/testdata and vision/imageio/testdata that the Go tests read, with NumPy, Pillow and pyarrow.

    python tests/make_datasets_golden.py

What is in them is told by formulas, which the tests have too; of pictures, Pillow's pixels are beside them.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

DATA = Path(__file__).parent.parent / "gotorch/data"


def npy() -> None:
    to = DATA / "npy/testdata"
    to.mkdir(parents=True, exist_ok=True)
    for dtype in ["b1", "i1", "<i2", ">i2", "<i4", ">i4", "<i8", ">i8", "u1", "<u2", ">u2", "<u4", ">u4", "<u8", ">u8", "<f2", ">f2", "<f4", ">f4", "<f8", ">f8", "<c8", ">c8", "<c16", ">c16"]:  # fmt: skip
        array = (
            np.array([[0, 1, 1], [1, 0, 1]]) if dtype == "b1" else np.array([[1, 2, 3], [4, 5, 6]])
        )
        if "c" in dtype:
            array = array + array * 2j
        name = dtype.replace("<", "little_").replace(">", "big_")
        np.save(to / f"{name}.npy", array.astype(dtype))
    np.save(to / "fortran.npy", np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)))
    np.save(to / "scalar.npy", np.float64(1.5))
    np.save(to / "objects.npy", np.array([None, {}], object), allow_pickle=True)
    np.save(to / "text.npy", np.array(["ab", "c"]))
    np.save(to / "structure.npy", np.zeros(2, [("x", "f4"), ("y", "i2")]))
    np.savez_compressed(
        to / "both.npz", x=np.arange(4, dtype=np.int32), y=np.ones((2, 2), np.float32)
    )


def images() -> None:
    to = DATA.parent / "vision/imageio/testdata"
    to.mkdir(parents=True, exist_ok=True)
    y, x = np.mgrid[0:5, 0:9]
    pixels = np.stack([x * 28, y * 60, (x * y * 7) % 256, 255 - x * 10], 2).astype(np.uint8)
    rgba = Image.fromarray(pixels)
    rgb = rgba.convert("RGB")
    exif = Image.Exif()
    exif[0x112] = 6
    for name, picture, options in [
        ("rgb.png", rgb, {}), ("rgba.png", rgba, {}), ("gray.png", rgb.convert("L"), {}), ("bits.png", rgb.convert("1"), {}),
        ("palette.png", rgb.quantize(7), {}), ("palette.gif", rgb.quantize(7), {}), ("rgb.bmp", rgb, {}),
        ("rgb.tiff", rgb, {"compression": "tiff_lzw"}), ("rgb.webp", rgb, {"lossless": True}), ("rgb.ppm", rgb, {}),
        ("gray.pgm", rgb.convert("L"), {}), ("bits.pbm", rgb.convert("1"), {}),
        ("rgb.jpg", rgb, {"quality": 100, "subsampling": 0}), ("turned.jpg", rgb, {"quality": 100, "subsampling": 0, "exif": exif}),
    ]:  # fmt: skip
        picture.save(to / name, **options)
        decoded = np.asarray(Image.open(to / name).convert("RGB"))
        (to / f"{name}.rgb").write_bytes(decoded.transpose(2, 0, 1).tobytes())


def parquet() -> None:
    to = DATA / "parquet/testdata"
    to.mkdir(parents=True, exist_ok=True)
    i = np.arange(1000)
    table = pa.table({
        "a": pa.array(i, pa.int64()),
        "b": pa.array(i / 4, pa.float32()),
        "c": pa.array(i * 1.5, pa.float64(), mask=i % 5 == 0),
        "u": pa.array(i.astype(np.uint64) + 2**63, pa.uint64()),
        "flag": pa.array(i % 2 == 1),
        "kind": pa.array([["red", "green", "blue"][n % 3] for n in i]),
        "list": pa.array([[1.0, 2.0]] * len(i)),
    })  # fmt: skip
    pq.write_table(table, to / "plain.parquet", row_group_size=300)
    pq.write_table(table, to / "packed.parquet", compression="zstd", data_page_version="2.0")
    pq.write_table(table.set_column(0, "a", pa.array(i, pa.int32())), to / "other.parquet")
    # A dictionary is written whole for each group of rows, with what is in none of them.
    kinds = pa.DictionaryArray.from_arrays(i[:10] % 3, ["red", "green", "blue", "grey", "black"])
    table = pa.table({"a": table["a"][:10], "kind": kinds})
    pq.write_table(table, to / "categories.parquet", row_group_size=3, store_schema=False)
    types(to)


def types(to: Path) -> None:
    """Columns that are no plain numbers."""
    colours = ["red", "green", "blue"]
    rows = range(60)
    table = pa.table({
        "decimal": pa.array([Decimal(i**3 - 50000).scaleb(-2) for i in rows], pa.decimal128(38, 2)),
        "whole": pa.array([Decimal(2**62 + i) for i in rows], pa.decimal128(20, 0)),
        "half": pa.array([np.float16(i / 8) for i in rows], pa.float16()),
        "day": pa.array(list(rows), pa.date32()),
        "time": pa.array([i * 1_000_000 + 500_000 for i in rows], pa.timestamp("us")),
        "written": [f"1970-01-01 00:{i:02}:00+00:00" for i in rows],
        "text": [None if i % 4 == 3 else "x" * i for i in rows],
        "colour": pa.array([colours[i % 3] for i in rows]).dictionary_encode(),
        "year": pa.array([2000 + i for i in rows], pa.int16()),
        "list": pa.array([None if i % 7 == 0 else [None if k == 2 else 10 * i + k for k in range(i % 4)] for i in rows], pa.list_(pa.int64())),
        "matrix": pa.array([[[i, -i], [2 * i, -2 * i]] for i in rows], pa.list_(pa.list_(pa.float32()))),
        "items": [[{"price": i / 4, "colour": colours[i % 3]}, {"price": i / 2, "colour": "red"}] for i in rows],
        "point": [None if i % 5 == 0 else {"x": float(i), "inner": None if i % 3 == 0 else {"y": -i}} for i in rows],
        "map": pa.array([[("red", i), ("green", -i)] for i in rows], pa.map_(pa.string(), pa.int64())),
    })  # fmt: skip
    pq.write_table(table, to / "types.parquet", row_group_size=25, data_page_size=64)
    # Timestamps as INT96, decimals as integers, and lists of two levels.
    old = pa.table({
        "time": table["time"],
        "short": pa.array([Decimal(i - 30).scaleb(-1) for i in rows], pa.decimal128(9, 1)),
        "list": pa.array([[i, i + 1] for i in rows], pa.list_(pa.int32())),
    })  # fmt: skip
    pq.write_table(
        old, to / "old.parquet", use_deprecated_int96_timestamps=True, store_decimal_as_integer=True,
        use_compliant_nested_type=False, version="1.0",
    )  # fmt: skip


if __name__ == "__main__":
    npy()
    images()
    parquet()
