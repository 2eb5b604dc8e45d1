"""A model of MLServer."""

import os

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse
from models import Served


class Runtime(MLModel):
    async def load(self) -> bool:
        import torch

        self.torch = torch
        self.served = Served(self.settings.name, os.environ["SERVED_FOLDER"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        x = NumpyCodec.decode_input(payload.inputs[0])
        y = self.served(self.torch.from_numpy(x))
        return InferenceResponse(
            model_name=self.name, outputs=[NumpyCodec.encode_output("y", y.numpy())]
        )
