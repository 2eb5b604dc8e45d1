"""A service of BentoML. It takes a file, which is a tensor's bytes, and returns numbers."""

import os
from pathlib import Path
from typing import Annotated

import bentoml
import numpy as np
from models import Served


@bentoml.service(workers=1, traffic={"timeout": 120})
class Service:
    def __init__(self) -> None:
        self.served = Served(os.environ["SERVED_MODEL"], os.environ["SERVED_FOLDER"])

    @bentoml.api(route="/predict")
    def predict(
        self, body: Annotated[Path, bentoml.validators.ContentType("application/octet-stream")], /
    ) -> np.ndarray:
        return self.served(self.served.tensor(body.read_bytes()))[0].numpy()
