"""gotorch/vision/imageio decodes JPEGs to Pillow's pixels, to the last bit.

CONFORMANCE=full tries fifty times as many; pytorch_bridge/testing/jpegs.py draws them. Without
Pillow, the Go tests have some that it has decoded.
"""

from __future__ import annotations

import os

import pytest

from pytorch_bridge.testing import jpegs
from pytorch_bridge.testing.gotests import run_go

PACKAGE = "./gotorch/vision/imageio/internal/jpeg"
FULL = os.environ.get("CONFORMANCE") == "full"


def test_pixels_are_pillows_to_the_last_bit(tmp_path):
    pytest.importorskip("PIL.Image", reason="which decodes them, too")
    path = tmp_path / "pictures.zip"
    jpegs.archive(path, range(1000, 1000 + (20_000 if FULL else 400)))
    done = run_go("test", "-count=1", PACKAGE, "-run", "Pillows", JPEGS=str(path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_difference_would_be_seen(tmp_path, monkeypatch):
    """The sums that the Go test is given are of Pillow's pixels: with others it fails."""
    pytest.importorskip("PIL.Image", reason="which decodes them, too")
    path = tmp_path / "pictures.zip"
    pixels = jpegs.pixels

    def other(encoded):
        w, h, channels, decoded = pixels(encoded)
        return w, h, channels, decoded[:-1] + bytes([decoded[-1] ^ 1])

    monkeypatch.setattr(jpegs, "pixels", other)
    jpegs.archive(path, range(1000, 1100))
    done = run_go("test", "-count=1", PACKAGE, "-run", "Pillows", JPEGS=str(path))
    assert done.stdout.count("the pixels differ") == 100
