"""What `make demo` runs, as a user would: two processes, with and without a terminal, interrupted."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
from pathlib import Path

import pytest
from safetensors.torch import load_file

from pytorch_bridge.native.toolchain import ROOT, build_dir
from pytorch_bridge.testing.gotests import run_go

LINE = re.compile(
    r"epoch +(\d+)/\d+  \d+\.\d s  loss \d+\.\d{4}  val_loss \d+\.\d{4}  val_accuracy (\d\.\d{4})"
)
# An epoch that takes ten seconds, on a busy machine, says in between how far it is.
STEP = re.compile(r"epoch +\d+/\d+  step \d+ of 63  loss \d+\.\d{4}")


@pytest.fixture(scope="module")
def digits(library) -> Path:
    """The program."""
    program = build_dir() / "bin/digits"
    built = run_go("build", "-buildvcs=false", "-o", str(program), "./examples/digits")
    assert built.returncode == 0, built.stderr
    return program


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:])


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_demo_learns_to_read_digits(digits: Path, tmp_path: Path) -> None:
    trained = run(digits, "-out", tmp_path, "train")
    assert trained.returncode == 0, trained.stderr
    lines = [line for line in trained.stderr.splitlines() if not STEP.fullmatch(line)]
    assert [int(LINE.fullmatch(line)[1]) for line in lines] == list(range(1, 13))
    assert float(LINE.fullmatch(lines[-1])[2]) >= 0.97
    assert re.search(r"80298 parameters, 4000 digits .*, 1000 to test with", trained.stdout)
    assert png_size(tmp_path / "loss.png") == (840, 540)

    predicted = run(digits, "-out", tmp_path, "predict")
    assert predicted.returncode == 0, predicted.stderr
    accuracy = float(re.search(r"read 1000 digits .*: (\d+\.\d) %", predicted.stdout)[1])
    assert accuracy == pytest.approx(100 * float(LINE.fullmatch(lines[-1])[2]), abs=0.051)
    assert accuracy >= 97
    assert png_size(tmp_path / "digits.png")[0] > 500
    names = {f"{i}.{kind}" for i in (0, 1, 4, 5, 10, 13) for kind in ("weight", "bias")}
    assert names <= load_file(tmp_path / "model.safetensors").keys()


def test_ctrl_c_keeps_what_was_learnt(digits: Path, tmp_path: Path) -> None:
    command = [digits, "-out", tmp_path, "-epochs", "1000", "train"]
    with subprocess.Popen(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        while STEP.match(line := process.stderr.readline()):
            pass
        assert LINE.match(line)  # an epoch is done
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate()
    assert process.returncode == 130
    assert "interrupted; the model as it is now is in" in output
    assert not list(tmp_path.glob(".*")), "a half-written file is left"
    predicted = run(digits, "-out", tmp_path, "predict")
    assert predicted.returncode == 0, predicted.stderr


@pytest.mark.parametrize("columns", [0, 90])  # some terminals do not know their size
def test_a_terminal_shows_a_bar(digits: Path, tmp_path: Path, columns: int) -> None:
    terminal, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [digits, "-out", tmp_path, "-epochs", "2", "train"]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm"},
        stdin=inner,
        stdout=subprocess.DEVNULL,
        stderr=inner,
        start_new_session=True,
    )
    os.close(inner)
    shown = b""
    while process.poll() is None or select.select([terminal], [], [], 0)[0]:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                shown += os.read(terminal, 1 << 16)
            except OSError:  # closed from the other side
                break
    os.close(terminal)
    assert process.wait() == 0
    text = shown.decode()
    bars = re.findall(r"epoch 1/2 +\d+/63  \[=*>? *\]", text)
    assert len(set(bars)) > 1, text
    assert [m[1] for m in LINE.finditer(text)] == ["1", "2"]


def test_what_is_missing_is_said(digits: Path, tmp_path: Path) -> None:
    for arguments, said in {
        ("-sample", "nowhere.gz", "train"): "type `make setup`",
        ("-mnist", str(tmp_path), "train"): "train-images-idx3-ubyte",
        ("predict",): "`digits train` makes the model",
        ("-sample", "README.md", "train"): "its SHA-256 is",
    }.items():
        failed = run(digits, "-out", tmp_path, *arguments)
        assert failed.returncode == 1
        assert said in failed.stderr
        assert "goroutine" not in failed.stderr
    assert run(digits).returncode == 2


def test_the_first_program_runs(library) -> None:
    done = run_go("run", "-buildvcs=false", "./examples/hello")
    assert done.stdout == "y = 2.00 x + 1.00\n", done.stderr
