"""What an exported model offers, in words.

Not here: anything that runs it.
"""

import json
from pathlib import Path
from typing import Any

import tensorflow as tf


def describe(directory: str | Path) -> str:
    """Signatures, shapes, thresholds and metrics of a SavedModel, the newest if versions."""
    path = newest(Path(directory))
    loaded = tf.saved_model.load(str(path))
    lines = [str(path)]
    for name, function in sorted(loaded.signatures.items()):
        arguments = function.structured_input_signature[1].values()
        takes = ", ".join(f"{spec.name} {_kind(spec)}" for spec in arguments)
        lines.append(f"  {name}: {takes}")
        for output, spec in sorted(function.structured_outputs.items()):
            lines.append(f"    {output} {_kind(spec)}")
    facts = path / "assets.extra" / "jem.json"
    if facts.is_file():
        for key, value in json.loads(facts.read_text()).items():
            if key != "signatures":
                lines.append(f"  {key}: {json.dumps(_short(value))}")
    return "\n".join(lines)


def newest(directory: Path) -> Path:
    """`directory` if it is a SavedModel, else its largest version."""
    if (directory / "saved_model.pb").is_file():
        return directory
    found = [
        p for p in directory.glob("*") if p.name.isdigit() and (p / "saved_model.pb").is_file()
    ]
    if not found:
        raise ValueError(f"There is no SavedModel at {str(directory)!r}.")
    return max(found, key=lambda p: int(p.name))


def _short(value: Any) -> Any:
    """Without the numbers of a chart."""
    if isinstance(value, dict):
        return {k: _short(v) for k, v in value.items() if k != "reliability"}
    return value


def _kind(spec: Any) -> str:
    return f"{spec.dtype.name}{['?' if d is None else d for d in spec.shape]}".replace("'", "")
