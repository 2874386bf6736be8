"""Commands that serve models, and that ask a server: `serve`, `gateway`, `load`, `predict`."""

import dataclasses
import json
import logging
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BAD_FILE = ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")  # codes that may be due to one file


def serve(arguments: Namespace) -> None:
    from jem_tf.server import flags

    try:
        from jem_tf.server import model_files
        from jem_tf.server.serving import ModelServer
    except ImportError as error:
        raise ValueError(f"{error}: serving needs `pip install jem_tf[serve]`.") from error
    for name in flags.IGNORED:
        if getattr(arguments, name) is not None:
            print(f"--{name} has no effect here.", file=sys.stderr)
    values = {f.name: getattr(arguments, f.name) for f in dataclasses.fields(flags.Options)}
    if arguments.directory is not None:
        values["model_base_path"] = arguments.directory
    base = values["model_base_path"]
    if base and not model_files.exists(base):
        raise ValueError(f"There is no directory {base!r} to serve.")
    if values["model_name"] == "default" and arguments.directory is not None:
        values["model_name"] = model_files.absolute(base).rstrip("/").rpartition("/")[2]
    _log_json_lines()
    ModelServer(flags.Options(**values)).run()


def gateway(arguments: Namespace) -> None:
    try:
        from jem_tf.server.flags import Options
        from jem_tf.server.gateway import Gateway
    except ImportError as error:
        raise ValueError(f"{error}: the gateway needs `pip install jem_tf[serve]`.") from error
    _log_json_lines()
    names = ("host", "port", "rest_api_port", "allowed_hosts", "auth_token_file")
    options = Options(**{name: getattr(arguments, name) for name in names})
    upstream = (arguments.upstream, arguments.upstream_rest)
    Gateway(*upstream, options, forward_reload=arguments.enable_reload_config).run()


def _log_json_lines() -> None:
    from jem_tf.server.serving import JsonLines

    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("httpx").setLevel(logging.WARNING)


def load(arguments: Namespace) -> None:
    from jem_tf.client.load_generator import generate_load

    for clients in arguments.clients:
        result = generate_load(
            arguments.address,
            arguments.model,
            arguments.signature,
            clients,
            arguments.seconds,
            arguments.rows,
        )
        print(
            f"{clients} clients: {result.per_second:.0f} requests/s, p50 "
            f"{result.milliseconds(0.5):.1f} ms, p99 {result.milliseconds(0.99):.1f} ms"
        )
        if result.failures:
            counts = ", ".join(f"{n} {code}" for code, n in result.failures.most_common())
            raise ValueError(f"{result.failures.total()} requests failed: {counts}")


def predict(arguments: Namespace) -> None:
    from jem_tf.client import JEMClient

    names = ("version", "label", "timeout", "ca", "certificate", "key")
    options = {name: getattr(arguments, name) for name in names}
    failed = 0
    if arguments.token_file is not None:
        options["token"] = arguments.token_file.read_text().strip()
    with JEMClient(arguments.address, arguments.model, **options) as client:
        for row in _answers(client, arguments.images):
            failed += "error" in row
            if arguments.json:
                print(json.dumps(row))
            elif "error" in row:
                print(f"{row['image']}: {row['error']}", file=sys.stderr)
            else:
                verdict = "not like" if row["is_ood"] else "like"
                print(
                    f"{row['image']}: {row['class']} ({100 * row['probability']:.1f} %), energy "
                    f"{row['energy']:.2f}, {verdict} the training data (score "
                    f"{row['ood_score']:.3g})"
                )
    if failed:
        raise ValueError(f"{failed} of {len(arguments.images)} images have no answer.")


def _answers(client: Any, images: list[Path]) -> Iterator[dict[str, Any]]:
    """A row for each of `images`; if the server refuses some, only these have an error."""
    try:
        answers = client.predict_images(images)
    except OSError as error:  # of the file system, or `ServingError`
        if getattr(error, "code", BAD_FILE[0]) not in BAD_FILE:
            raise
        if len(images) == 1:
            yield {"image": str(images[0]), "error": str(error)}
            return
        for image in images:
            yield from _answers(client, [image])
        return
    for i, image in enumerate(images):
        yield {
            "image": str(image),
            "class": str(answers.class_name[i]),
            "probability": float(answers.probabilities[i].max()),
            "energy": float(answers.energy[i]),
            "ood_score": float(answers.ood_score[i]),
            "is_ood": bool(answers.is_ood[i]),
        }
