r"""A FastAPI service that takes requests only once its convolutions are tuned and its plans are built.

    python fastapi_server.py && exec convtune run -- uvicorn fastapi_server:app --workers 2

The first command tunes what the daemon does not know yet, and fails where a convolution has no answer. The model runs
on the meta device for that, so the command needs no GPU memory. Each worker process of the second reads the published
winners, loads the model, and runs it once with each batch size. uvicorn starts to answer when the lifespan yields.
"""

import contextlib
import sys
from collections.abc import AsyncIterator

import convtune
import torch
from fastapi import FastAPI

BATCH_SIZES = (1, 8)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def load() -> torch.nn.Module:
    """Yours. The layout is the one in which it is served."""
    layers = (torch.nn.Conv2d(3, 16, 7, stride=2, padding=3), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3, padding=1))
    return torch.nn.Sequential(*layers).eval().to(memory_format=torch.channels_last)


def images(batch: int, device: str) -> torch.Tensor:
    return torch.zeros(batch, 3, 64, 64, device=device).contiguous(memory_format=torch.channels_last)


def tune() -> bool:
    model = load().to("meta")
    with convtune.Client() as client:
        summaries = [convtune.warm(model, client, example_inputs=(images(batch, "meta"),)) for batch in BATCH_SIZES]
    for batch, summary in zip(BATCH_SIZES, summaries):
        print(f"batch {batch}: {summary}")
    return all(summary.is_warm for summary in summaries)


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.model = load().to(DEVICE)
    for batch in BATCH_SIZES:
        run(batch)
    yield


def run(batch: int) -> list[int]:
    with torch.inference_mode():
        return list(app.state.model(images(batch, DEVICE)).cpu().shape)


app = FastAPI(lifespan=lifespan)


@app.get("/ready")
def ready() -> dict[str, object]:
    return {"device": DEVICE, "batch_sizes": BATCH_SIZES}


@app.get("/run/{batch}")
def run_batch(batch: int) -> dict[str, object]:
    return {"shape": run(batch)}


if __name__ == "__main__":
    sys.exit(0 if tune() else 1)
