"""A handler of TorchServe. Bodies are the bytes of a tensor."""

import os

import torch
from models import Served


class Handler:
    def initialize(self, context) -> None:
        self.served = Served(os.environ["SERVED_MODEL"], os.environ["SERVED_FOLDER"])

    def handle(self, data, context) -> list[bytes]:
        x = torch.cat([self.served.tensor(one["body"]) for one in data])
        return [row.tobytes() for row in self.served(x).numpy()]
