"""Checkpoint directories that are complete or absent: written aside, synced, renamed, checksummed.

Not here: when to save, and what the state means (`callbacks/resume.py`).
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


class CorruptCheckpoint(ValueError):
    """A checkpoint differs from what was written."""


def write(
    directory: Path, save_model: Callable[[Path], Any], state: dict[str, Any], keep: int = 2
) -> Path:
    """Write the next checkpoint of `directory` and delete all but the newest `keep`."""
    directory.mkdir(parents=True, exist_ok=True)
    number = max((int(path.name) for path in _numbered(directory)), default=0) + 1
    checkpoint = directory / f"{number:06d}"
    temporary = directory / f".{checkpoint.name}.part"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        save_model(temporary / MODEL)
        text = json.dumps({"state": state, "model": _file_checksum(temporary / MODEL)})
        (temporary / STATE).write_text(_checksum(text.encode()) + "\n" + text + "\n")
        for path in (temporary / MODEL, temporary / STATE, temporary):
            _sync(path)
        os.replace(temporary, checkpoint)
        _sync(directory)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    for old in _numbered(directory)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return checkpoint


def read(checkpoint: Path) -> dict[str, Any]:
    """Return the state of `checkpoint`; raise `CorruptCheckpoint` if any byte has changed."""
    try:
        checksum, text, _ = (checkpoint / STATE).read_text().split("\n")
        if checksum != _checksum(text.encode()):
            raise CorruptCheckpoint(f"{STATE} has changed since it was written")
        content = json.loads(text)
        if content["model"] != _file_checksum(checkpoint / MODEL):
            raise CorruptCheckpoint(f"{MODEL} has changed since it was written")
    except CorruptCheckpoint:
        raise
    except (OSError, ValueError, KeyError) as error:
        raise CorruptCheckpoint(f"it cannot be read: {error}") from error
    return content["state"]


def newest(directory: Path) -> tuple[Path, dict[str, Any]] | None:
    """Return the newest intact checkpoint and its state; warn about each corrupt one."""
    for checkpoint in reversed(_numbered(directory)):
        try:
            return checkpoint, read(checkpoint)
        except CorruptCheckpoint as error:
            warnings.warn(
                f"Checkpoint {str(checkpoint)!r} is corrupt ({error}): using the one before it.",
                stacklevel=2,
            )
    return None


def _numbered(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if path.name.isdigit())


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _file_checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
