"""Python eager for `make bench`: reads "CASE ITERATIONS" lines, answers "WALL_NS CPU_NS"."""

import sys
import time

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

a, b = torch.randn(2, 2), torch.randn(2, 2)
x1, x64 = torch.randn(1, 784), torch.randn(64, 784)
y64 = torch.randint(10, (64,))
images = torch.randn(64, 1, 28, 28)
mlp = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
adam_mlp = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
mlp_adam = torch.optim.Adam(adam_mlp.parameters())
mlp_sgd = torch.optim.SGD(mlp.parameters(), lr=0.01)
cnn = nn.Sequential(
    nn.Conv2d(1, 32, 3),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(1600, 128),
    nn.ReLU(),
    nn.Linear(128, 10),
)
cnn_sgd = torch.optim.SGD(cnn.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()


def add(n: int) -> None:
    for _ in range(n):
        torch.add(a, b)


def mm(n: int) -> None:
    for _ in range(n):
        torch.mm(a, b)


def relu(n: int) -> None:
    for _ in range(n):
        torch.relu(a)


def transpose(n: int) -> None:
    for _ in range(n):
        torch.transpose(a, 0, 1)


def mlp_forward_1(n: int) -> None:
    with torch.no_grad():
        for _ in range(n):
            mlp(x1)


def mlp_forward_64(n: int) -> None:
    with torch.no_grad():
        for _ in range(n):
            mlp(x64)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, n: int) -> None:
    for _ in range(n):
        optimizer.zero_grad()
        criterion(model(x), y64).backward()
        optimizer.step()


def mlp_step_64(n: int) -> None:
    train(mlp, mlp_sgd, x64, n)


def mlp_adam_64(n: int) -> None:
    train(adam_mlp, mlp_adam, x64, n)


def cnn_step_64(n: int) -> None:
    train(cnn, cnn_sgd, images, n)


CASES = {
    f.__name__: f
    for f in (
        *(add, mm, relu, transpose, mlp_forward_1, mlp_forward_64),
        *(mlp_step_64, mlp_adam_64, cnn_step_64),
    )
}

for line in sys.stdin:
    name, count = line.split()
    run = CASES[name]
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    run(int(count))
    print(time.perf_counter_ns() - wall, time.process_time_ns() - cpu, flush=True)
