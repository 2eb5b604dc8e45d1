"""FastAPI, uvicorn and PyTorch, as one writes it who knows all three: bodies are the bytes of a
tensor, nothing is validated that need not be, a model of microseconds runs in the event loop, and
others in a thread."""

import os
import sys

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from models import Served

name, folder, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
served = Served(name, folder)
app = FastAPI()
quick = name == "mlp"


@app.post("/predict")
async def predict(request: Request) -> Response:
    body = await request.body()
    out = served.answer(body) if quick else await run_in_threadpool(served.answer, body)
    return Response(out, media_type="application/octet-stream")


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    uvicorn.run(app, host="127.0.0.1", port=port, access_log=False, log_level="warning")
