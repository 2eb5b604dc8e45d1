"""What goes wrong in a job: ranks that are killed, a store that dies, a network that is cut in two.

Each rank that is left must end by itself, with a typed error, and leave nothing behind: no process, no
port, no file. The ranks are distributed/faults, which train until something happens. With SOAK they are
killed a hundred times.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytorch_bridge.testing.gotests import run_go

TYPED = {"DistNetworkError", "DistTimeoutError", "DistStoreError"}
LIMIT = 240  # seconds in which a busy machine comes to anything


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("faults") / "faults"
    built = run_go("build", "-buildvcs=false", "-o", str(made), "./tests/distributed/faults")
    assert built.returncode == 0, built.stderr
    return made


def sessions() -> dict[int, list[int]]:
    """Which processes each session has."""
    found: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            rest = stat.read_text().rpartition(")")[2].split()
            if rest[0] not in "ZX":
                found.setdefault(int(rest[3]), []).append(int(stat.parent.name))
    return found


class Process:
    """A process of distributed/faults, in a session of its own."""

    def __init__(self, command: list[str], folder: Path, **variables: str) -> None:
        env = os.environ | {"TMPDIR": str(folder)} | variables
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
            text=True, cwd=folder, start_new_session=True,
        )  # fmt: skip
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.said: list[str] = []
        self.complaints = ""
        self.readers = [threading.Thread(target=read) for read in (self._read, self._complain)]
        for reader in self.readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put(None)

    def _complain(self) -> None:
        assert self.process.stderr is not None
        self.complaints = self.process.stderr.read()

    def until(self, line: str) -> bool:
        """Waits until it has said that; False where it has ended before."""
        while line not in self.said:
            got = self.lines.get(timeout=LIMIT)
            if got is None:
                self.lines.put(None)
                return False
            self.said.append(got)
        return True

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> dict[str, Any]:
        """What a rank has come to."""
        code = self.process.wait(LIMIT)
        while (line := self.lines.get(timeout=LIMIT)) is not None:
            self.said.append(line)
        self.lines.put(None)
        self.readers[1].join()
        assert code == 0, (code, self.said[-2:], self.complaints[-3000:])
        assert self.said[-1] == "left"
        return json.loads(self.said[-2])


class Job:
    """Ranks that meet at a port."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.program, self.folder = program, folder
        self.processes: list[Process] = []
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = int(s.getsockname()[1])

    def start(self, *options: str, within: Namespace | None = None, **variables: str) -> Process:
        command = [*(within.command if within else []), str(self.program), *options]
        self.processes.append(Process(command, self.folder, **variables))
        return self.processes[-1]

    def rank(self, rank: int, size: int, *options: str, **variables: str) -> Process:
        meet = f"tcp://127.0.0.1:{self.port}"
        return self.start(
            "-meet", meet, "-rank", str(rank), "-size", str(size), *options, **variables
        )

    def left(self) -> None:
        """Nothing is left."""
        for process in self.processes:
            assert process.process.poll() is not None
        there = sessions()
        assert not [there[p.process.pid] for p in self.processes if p.process.pid in there]
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("127.0.0.1", self.port))
        assert not list(self.folder.iterdir())


@pytest.fixture
def job(program: Path, tmp_path: Path) -> Iterator[Job]:
    folder = tmp_path / "job"
    folder.mkdir()
    made = Job(program, folder)
    yield made
    for process in made.processes:
        process.kill()
        process.process.wait()
        for reader in process.readers:
            reader.join()


# Ranks that are killed ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ddp", "shard"])
def test_ranks_that_are_killed_are_noticed(kind: str, job: Job) -> None:
    """Rank 0 has the store, so that its death is that of the store, too."""
    draw = random.Random(kind)
    moments = ["start", "joined", "step 2"]
    if os.environ.get("SOAK"):
        moments = [
            draw.choice(["start", "joined", *map("step {}".format, range(1, 30))])
            for _ in range(100)
        ]
    for i, moment in enumerate(moments):
        victim = draw.randrange(3) if len(moments) > 3 else i
        options = ["-kind", kind, "-timeout", "5s" if moment == "start" else "60s"]
        ranks = [job.rank(rank, 3, *options) for rank in range(3)]
        if moment != "start":
            assert ranks[victim].until(moment)
        time.sleep(draw.random() * (0.3 if moment == "start" else 0.003))
        ranks[victim].kill()
        assert ranks[victim].process.wait(LIMIT) == -signal.SIGKILL
        for rank, process in enumerate(ranks):
            if rank != victim:
                end = process.end()
                assert end["Kind"] in TYPED, (moment, victim, rank, end)
        job.left()


@pytest.mark.parametrize("kind", ["ddp", "shard"])
@pytest.mark.parametrize("stays", [True, False])
def test_ranks_with_fewer_batches_are_noticed(kind: str, stays: bool, job: Job) -> None:
    """By the others when they have left, or when the time is over."""
    options = ["-kind", kind, "-then", "3s"]
    ranks = [job.rank(rank, 3, *options) for rank in (0, 1)]
    fewer = job.rank(2, 3, *options, "-steps", "3", *(["-stays"] if stays else []))
    for process in ranks:
        end = process.end()
        assert end["Kind"] in TYPED, end
        assert end["Steps"] == 3
    assert fewer.process.stdin is not None
    fewer.process.stdin.close()
    assert fewer.end()["Kind"] == ""
    job.left()


# A store that dies --------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["before", "amid", "training"])
def test_a_store_that_dies_is_an_error_of_who_needs_it(moment: str, job: Job) -> None:
    """Its process is none of the ranks', as torchrun's. Ranks that have met need it only to make groups."""
    store = job.start("-store")
    job.port = int(store.lines.get(timeout=LIMIT) or 0)

    def rank(rank: int) -> Process:
        return job.start(
            "-timeout", "5s", "-then", "5s", "-steps", "30", "-after",
            MASTER_ADDR="127.0.0.1", MASTER_PORT=str(job.port), RANK=str(rank), WORLD_SIZE="2",
            TORCHELASTIC_USE_AGENT_STORE="True",
        )  # fmt: skip

    def kill() -> None:
        store.kill()
        store.process.wait(LIMIT)

    if moment == "before":
        kill()
        ranks = [rank(0), rank(1)]
    elif moment == "amid":
        ranks = [rank(0)]
        connected(job.port, ranks[0])
        kill()
    else:
        ranks = [rank(0), rank(1)]
        assert ranks[0].until("step 3")
        kill()
    for process in ranks:
        end = process.end()
        if moment != "training":
            assert end["Kind"] in TYPED, end
            continue
        assert (end["Kind"], end["Steps"]) == ("", 30)
        assert end["Later"].keys() == {"set", "add", "check", "get", "new"}
        assert set(end["Later"].values()) <= TYPED, end
    job.left()


def connected(port: int, process: Process) -> None:
    """Waits until a process is connected to a port of this machine."""
    until = time.monotonic() + LIMIT
    remote = f":{port:04X}"
    while time.monotonic() < until:
        rows = []
        for family in ("tcp", "tcp6"):
            rows += Path(f"/proc/{process.process.pid}/net/{family}").read_text().splitlines()[1:]
        if any(row.split()[2].endswith(remote) and row.split()[3] == "01" for row in rows):
            return
        time.sleep(0.01)
    raise TimeoutError


# A network that is cut in two ---------------------------------------------------------------------


class Namespace:
    """A network namespace, which ends with the process that has it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.holder = subprocess.Popen(["unshare", "-n", "cat"], stdin=subprocess.PIPE)
        self.command = ["nsenter", "-t", str(self.holder.pid), "-n"]
        mine = os.readlink("/proc/self/ns/net")
        until = time.monotonic() + LIMIT
        while os.readlink(f"/proc/{self.holder.pid}/ns/net") == mine and time.monotonic() < until:
            time.sleep(0.01)

    def ip(self, *arguments: str) -> None:
        subprocess.run(
            [*self.command, "ip", *arguments], check=True, capture_output=True, text=True
        )


@pytest.fixture
def network() -> Iterator[list[Namespace]]:
    """Two namespaces with a cable between them, or the test is skipped."""
    for tool in ("unshare", "nsenter", "ip"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool}, which makes network namespaces")
    tried = subprocess.run(["unshare", "-n", "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"network namespaces cannot be made here: {tried.stderr.strip()}")
    sides = [Namespace("10.77.0.1"), Namespace("10.77.0.2")]
    try:
        peer = str(sides[1].holder.pid)
        try:
            sides[0].ip(
                "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", peer
            )
        except subprocess.CalledProcessError as e:
            pytest.skip(f"this kernel has no veth: {e.stderr.strip()}")
        for side in sides:
            side.ip("link", "set", "lo", "up")
            side.ip("addr", "add", f"{side.address}/24", "dev", "cable")
            side.ip("link", "set", "cable", "up")
        yield sides
    finally:
        for side in sides:
            side.holder.kill()
            side.holder.wait()


CUTS = {
    "the cable is cut": lambda sides: sides[0].ip("link", "set", "cable", "down"),
    "the other end is": lambda sides: sides[1].ip("link", "set", "cable", "down"),
    "the cable is gone": lambda sides: sides[0].ip("link", "delete", "cable"),
    "packets are dropped": lambda sides: sides[0].ip(
        "route", "add", "blackhole", f"{sides[1].address}/32"
    ),
}


@pytest.mark.parametrize(
    ("cut", "kind"),
    [
        (cut, kind)
        for i, cut in enumerate(CUTS)
        for k, kind in enumerate(("ddp", "shard"))
        if i % 2 == k or os.environ.get("SOAK")
    ],
)
def test_a_network_that_is_cut_is_an_error_on_both_sides(
    cut: str, kind: str, job: Job, network: list[Namespace]
) -> None:
    """Amid training. Ranks 0, which has the store, and 1 are on one side, and rank 2 is on the other, where
    nothing tells it that the others are gone but the time limit."""
    ranks = []
    for rank, side in enumerate([network[0], network[0], network[1]]):
        options = ["-meet", f"tcp://{network[0].address}:29500", "-rank", str(rank), "-size", "3"]
        options += ["-kind", kind, "-then", "3s", "-after"]
        ranks.append(job.start(*options, within=side, GLOO_SOCKET_IFNAME="cable"))
    for process in ranks:
        assert process.until("step 2"), process.complaints
    CUTS[cut](network)
    for rank, process in enumerate(ranks):
        end = process.end()
        assert end["Kind"] in TYPED, (rank, end)
        assert end["Steps"] >= 2
        later = end["Later"]
        # Where there is no cable Gloo has no device.
        assert later["new"] in TYPED | ({"RuntimeError"} if cut == "the cable is gone" else set())
        if rank == 0 and cut != "the cable is gone":  # its address goes with it
            assert later["set"] == later["add"] == later["check"] == ""
        if rank == 2:
            assert {later["add"], later["check"], later["get"]} <= TYPED, later
    job.left()


def test_a_network_that_is_cut_before_ranks_meet(job: Job, network: list[Namespace]) -> None:
    CUTS["the cable is cut"](network)
    ranks = []
    for rank, side in enumerate(network):
        options = ["-meet", f"tcp://{network[0].address}:29500", "-rank", str(rank), "-size", "2"]
        ranks.append(job.start(*options, "-timeout", "3s", within=side, GLOO_SOCKET_IFNAME="cable"))
    for process in ranks:
        end = process.end()
        assert end["Kind"] in TYPED, end
    job.left()
