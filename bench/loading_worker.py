"""torch's DataLoader for `make bench`: reads "loader_jpegs_2 ITERATIONS" lines, of which the last
number of the name is that of workers, and answers "WALL_NS CPU_NS"; an iteration is an epoch. With
"loaded FOLDER jpegs ..." it prints the mean of each batch of the first epoch, and the sum of its
targets. bench/goworker/loading.go has the same data."""

import os
import sys
import time
import warnings

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

ARRAYS, ARRAY_BATCH, PICTURES, JPEG_BATCH = 10_000, 64, 64, 8


class Own(Dataset):
    """A data set of one's own, which has samples and no batches."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Jpegs(Dataset):
    """Pictures of a folder, which are decoded to numbers between 0 and 1: (3, side, side)."""

    def __init__(self, folder):
        self.folder = folder

    def __len__(self):
        return PICTURES

    def __getitem__(self, i):
        from PIL import Image

        with Image.open(os.path.join(self.folder, f"{i}.jpg")) as image:
            array = np.array(image.convert("RGB"))
        # As torchvision's ToTensor does.
        return torch.from_numpy(array).permute(2, 0, 1).contiguous().to(torch.float32).div(255), i


def loader(kind, folder, workers):
    options = {
        "shuffle": True,
        "generator": torch.Generator().manual_seed(1),
        "num_workers": workers,
        "persistent_workers": workers > 0,
    }
    if kind == "jpegs":
        return DataLoader(Jpegs(folder), batch_size=JPEG_BATCH, **options)
    x = torch.arange(ARRAYS * 784, dtype=torch.float32).reshape(ARRAYS, 784)
    made = {"arrays": TensorDataset, "samples": Own}[kind](x, torch.arange(ARRAYS))
    return DataLoader(made, batch_size=ARRAY_BATCH, **options)


def main():
    warnings.simplefilter("ignore")  # of more workers than processors
    torch.set_num_threads(1)
    if sys.argv[1] == "loaded":
        for kind in sys.argv[3:]:
            for x, y in loader(kind, sys.argv[2], 0):
                print(x.double().mean().item(), y.sum().item())
        return
    made = {}
    for line in sys.stdin:
        name, count = line.split()
        _, kind, workers = name.split("_")
        if name not in made:
            made.clear()  # whose processes end
            made[name] = loader(kind, sys.argv[1], int(workers))
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        for _ in range(int(count)):
            for _batch in made[name]:
                pass
        print(time.perf_counter_ns() - wall, time.process_time_ns() - cpu, flush=True)


if __name__ == "__main__":
    main()
