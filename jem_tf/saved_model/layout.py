"""The layout of a model directory: numbered versions, each a SavedModel with files of our own.

Not here: what the files hold (`exporter.py`). Only paths and JSON: a server can use this without
the rest of the package.

    saved_models/digits/            the model directory
        1/ 2/ 3/ ...                versions; TF Serving serves the largest
            saved_model.pb
            assets.extra/jem.json                       what the export says about itself
            assets.extra/examples.json                  example inputs, as the body of a request
            assets.extra/model.tflite                   for LiteRT, if it was asked for
            assets.extra/tf_serving_warmup_requests     requests that TF Serving replays at loading
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SAVED_MODEL = "saved_model.pb"
ASSETS = "assets.extra"
METADATA = f"{ASSETS}/jem.json"
EXAMPLES = f"{ASSETS}/examples.json"
LITE = f"{ASSETS}/model.tflite"
WARMUP = f"{ASSETS}/tf_serving_warmup_requests"
MAX_VERSION = 2**63 - 1  # TF Serving keeps versions as int64


def version_names(names: Iterable[str]) -> dict[int, str]:
    """Those of the `names` of directories that are versions, by number."""
    numbers = {int(name): name for name in names if name.isascii() and name.isdigit()}
    return {number: name for number, name in numbers.items() if number <= MAX_VERSION}


def versions(directory: Path) -> dict[int, Path]:
    """The version directories below `directory`, by number; `OSError` if it cannot be read."""
    names = version_names(path.name for path in directory.iterdir() if path.is_dir())
    return {number: directory / name for number, name in names.items()}


def next_version(directory: Path) -> Path:
    """The path of the version after the largest one below `directory`."""
    return directory / str(1 + max(versions(directory), default=0))


def newest(directory: Path) -> Path:
    """`directory` if it is a SavedModel, else the largest version below it."""
    if (directory / SAVED_MODEL).is_file():
        return directory
    candidates = versions(directory) if directory.is_dir() else {}
    complete = [number for number, path in candidates.items() if (path / SAVED_MODEL).is_file()]
    if not complete:
        raise ValueError(f"There is no SavedModel at {str(directory)!r}.")
    return candidates[max(complete)]


def json_object(content: str | bytes) -> dict[str, Any]:
    """The JSON object in the `content` of a file; empty if it holds something else."""
    try:
        value = json.loads(content)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def read_metadata(version: Path) -> dict[str, Any]:
    """What the export at `version` says about itself; empty for SavedModels of other tools."""
    try:
        return json_object((version / METADATA).read_bytes())
    except OSError:
        return {}
