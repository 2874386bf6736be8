"""Checkpoints that are whole or not there: written aside, synced, renamed, and checked by sum.

Not here: when to save, and what the state means (`resume.py`).
A checkpoint is a numbered directory with `model.keras` and `state.json`.
"""

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODEL, STATE = "model.keras", "state.json"


class Damaged(ValueError):
    """A checkpoint is not what was written."""


def write(
    directory: Path, save: Callable[[Path], Any], state: dict[str, Any], keep: int = 2
) -> Path:
    """Write the next checkpoint of `directory`, of which `keep` remain."""
    directory.mkdir(parents=True, exist_ok=True)
    number = max((int(path.name) for path in _numbered(directory)), default=0) + 1
    place = directory / f"{number:06d}"
    part = directory / f".{place.name}.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        save(part / MODEL)
        text = json.dumps({"state": state, "model": _sum_of(part / MODEL)})
        (part / STATE).write_text(_sum(text.encode()) + "\n" + text + "\n")
        for path in (part / MODEL, part / STATE, part):
            _sync(path)
        os.replace(part, place)
        _sync(directory)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    for old in _numbered(directory)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return place


def read(place: Path) -> dict[str, Any]:
    """The state of the checkpoint at `place`; `Damaged` if a byte of it is not as written."""
    try:
        checksum, text, _ = (place / STATE).read_text().split("\n")
        if checksum != _sum(text.encode()):
            raise Damaged(f"{STATE} has changed since it was written")
        content = json.loads(text)
        if content["model"] != _sum_of(place / MODEL):
            raise Damaged(f"{MODEL} has changed since it was written")
    except Damaged:
        raise
    except (OSError, ValueError, KeyError) as error:
        raise Damaged(f"it cannot be read: {error}") from error
    return content["state"]


def newest(directory: Path) -> tuple[Path, dict[str, Any]] | None:
    """The newest checkpoint that is whole, and its state; a warning for each that is not."""
    for place in reversed(_numbered(directory)):
        try:
            return place, read(place)
        except Damaged as error:
            warnings.warn(
                f"Checkpoint {str(place)!r} is damaged ({error}): the one before it is used.",
                stacklevel=2,
            )
    return None


def _numbered(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if path.name.isdigit())


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _sum_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
