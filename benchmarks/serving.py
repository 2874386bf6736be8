"""Requests per second of the embedded server, compared with the same function in this process.

    python benchmarks/serving.py [--network wide_resnet fashion_mnist digits] [--seconds 5]

Clients send one row at a time to `ood_score` over gRPC and REST, with batching on and off. A Flask
endpoint that calls `model.predict` for each request gets the same load. Servers and clients share
the cores of the machine. So does a gRPC server that answers at once: what Python's gRPC allows for.
The in-process rate is measured before and after the servers; the others
are compared with the mean of both.
"""

import argparse
import asyncio
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import grpc
import numpy as np

from jem_tf.client.load_generator import JsonPoster, LoadResult, generate_load, run_clients

SHAPES = {"digits": (8, 8, 1), "fashion_mnist": (28, 28, 1), "wide_resnet": (32, 32, 3)}
FLASK = """
import sys, keras, numpy as np, jem_tf
from flask import Flask, request
app, model = Flask("plain"), keras.saving.load_model(sys.argv[1])

@app.post("/predict")
def predict():
    logits = model.predict(np.array(request.get_json()["instances"], np.float32), verbose=0)
    return {"predictions": logits.tolist()}

app.run(port=int(sys.argv[2]), threaded=True)
"""

ECHO = """
import asyncio, sys, grpc

async def serve():
    server = grpc.aio.server()
    async def answer(message, context):
        return message
    methods = {"Predict": grpc.unary_unary_rpc_method_handler(answer)}
    name = "tensorflow.serving.PredictionService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, methods),))
    server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
    await server.start()
    await server.wait_for_termination()

asyncio.run(serve())
"""


def write_models(network: str, directory: Path) -> tuple[Path, Path]:
    """Write an export and a `.keras` file of an untrained network; return both paths.

    The network is that of the recipe of the same name, or WRN-10-2.
    """
    import keras

    import jem_tf
    from jem_tf import backbones
    from jem_tf.training import recipes

    keras.utils.set_random_seed(0)
    if network == "wide_resnet":
        backbone = backbones.wide_resnet(SHAPES[network], 10, depth=10, width=2)
    else:
        options = recipes.get(network).backbone_options
        backbone = backbones.convnet(SHAPES[network], 10, **options)
    model = jem_tf.JEM(backbone, seed=0)
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (256, *SHAPES[network])).astype(np.float32)
    model.adapt(x)
    model.save(directory / "model.keras")
    jem_tf.export(model, directory / "served", calibrate=(x, np.arange(256) % 10))
    return directory / "served", directory / "model.keras"


def in_process_rate(export: Path, shape: tuple[int, ...], seconds: float) -> float:
    """Return the rows per second of the signature at batch 32."""
    import tensorflow as tf

    function = tf.saved_model.load(str(export / "1")).signatures["ood_score"]
    x = tf.zeros((32, *shape))
    function(inputs=x)
    start, rows = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        function(inputs=x)["is_ood"].numpy()
        rows += 32
    return rows / (time.perf_counter() - start)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class ServerProcess:
    """A Python process that listens at `port`."""

    def __init__(self, command: list[Any], port: int):
        self._process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._port = port

    def __enter__(self) -> "ServerProcess":
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port)).close()
                return self
            except OSError:
                assert self._process.poll() is None, "the server process ended"
                time.sleep(0.1)

    def __exit__(self, *_: Any) -> None:
        self._process.terminate()
        self._process.wait()


def report(name: str, result: LoadResult, rows: dict[str, Any]) -> None:
    """Print a result and add it to `rows`."""
    assert not result.failures, result.failures
    p50, p99 = result.milliseconds(0.5), result.milliseconds(0.99)
    rows[name] = {"per_second": result.per_second, "p50_ms": p50, "p99_ms": p99}
    print(f"  {name:34} {result.per_second:7.0f} /s   p50 {p50:6.1f} ms   p99 {p99:6.1f} ms")


def measure_server(export: Path, batching: bool, seconds: float, rows: dict[str, Any]) -> None:
    port, rest = free_ports(2)
    flags = [f"--port={port}", f"--rest-api-port={rest}", f"--enable-batching={batching}"]
    start = time.perf_counter()
    with ServerProcess(["-m", "jem_tf", "serve", export, *flags], rest):
        print(f"  ready after {time.perf_counter() - start:.1f} s, batching {batching}")
        transports = {"gRPC": f"127.0.0.1:{port}", "REST": f"http://127.0.0.1:{rest}"}
        generate_load(transports["gRPC"], "served", "ood_score", 8, 1.0)
        for clients in (1, 8, 32) if batching else (32,):
            label = f"{clients} clients, {'' if batching else 'no '}batching"
            for transport, address in transports.items():
                result = generate_load(address, "served", "ood_score", clients, seconds)
                report(f"{transport}, {label}", result, rows)


def measure_flask(keras_file: Path, shape: tuple[int, ...], seconds: float, rows: Any) -> None:
    (port,) = free_ports(1)
    body = {"instances": np.zeros((1, *shape)).tolist()}
    with ServerProcess(["-c", FLASK, keras_file, port], port):
        client = lambda: JsonPoster(f"127.0.0.1:{port}", "/predict", body).send  # noqa: E731
        asyncio.run(run_clients(client, 4, 1.0))
        result = asyncio.run(run_clients(client, 32, seconds))
        report("Flask and model.predict, 32 clients", result, rows)


def measure_bound(shape: tuple[int, ...], seconds: float, rows: Any) -> None:
    """Measure messages of the size of a request to a server that only sends them back."""
    (port,) = free_ports(1)
    message = bytes(4 * int(np.prod(shape)))

    async def run(seconds: float) -> LoadResult:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")

            async def send() -> None:
                await call(message)

            return await run_clients(lambda: send, 32, seconds)

    with ServerProcess(["-c", ECHO, port], port):
        asyncio.run(run(1.0))
        report("gRPC that answers at once, 32 clients", asyncio.run(run(seconds)), rows)


def measure(network: str, seconds: float) -> dict[str, Any]:
    """Measure all servers with one network; return the rows of the table."""
    shape, rows = SHAPES[network], {}
    with tempfile.TemporaryDirectory() as name:
        export, keras_file = write_models(network, Path(name))
        before = in_process_rate(export, shape, seconds)
        for batching in (True, False):
            measure_server(export, batching, seconds, rows)
        measure_flask(keras_file, shape, seconds, rows)
        measure_bound(shape, seconds, rows)
        in_process = (before + in_process_rate(export, shape, seconds)) / 2
    print(f"  in this process, batch 32: {in_process:.0f} rows/s (first {before:.0f})")
    for transport in ("gRPC", "REST"):
        batched = rows[f"{transport}, 32 clients, batching"]["per_second"]
        unbatched = rows[f"{transport}, 32 clients, no batching"]["per_second"]
        flask = rows["Flask and model.predict, 32 clients"]["per_second"]
        print(
            f"  {transport}: {100 * batched / in_process:.0f} % of that; "
            f"{batched / unbatched:.2f} times no batching; {batched / flask:.1f} times Flask"
        )
    return {"in_process": in_process, **rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", nargs="+", default=list(SHAPES)[::-1])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores")
    results = {}
    for network in arguments.network:
        print(f"network of {network}, signature ood_score")
        results[network] = measure(network, arguments.seconds)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
