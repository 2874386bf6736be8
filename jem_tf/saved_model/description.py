"""What a SavedModel offers, as text.

Not here: anything that runs it.
"""

import json
from pathlib import Path
from typing import Any

from jem_tf.saved_model import layout
from jem_tf.saved_model.loading import load_saved_model


def describe(directory: str | Path) -> str:
    """Signatures, shapes, thresholds and metrics of a SavedModel, or of the newest version."""
    path = layout.newest(Path(directory))
    loaded = load_saved_model(path)
    lines = [str(path)]
    for name, function in sorted(loaded.signatures.items()):
        arguments = function.structured_input_signature[1].values()
        inputs = ", ".join(f"{spec.name} {_type_of(spec)}" for spec in arguments)
        lines.append(f"  {name}: {inputs}")
        for output, spec in sorted(function.structured_outputs.items()):
            lines.append(f"    {output} {_type_of(spec)}")
    for key, value in layout.read_metadata(path).items():
        if key != "signatures":
            lines.append(f"  {key}: {json.dumps(_without_charts(value))}")
    return "\n".join(lines)


def _without_charts(value: Any) -> Any:
    """`value` without the numbers of a reliability diagram."""
    if isinstance(value, dict):
        return {k: _without_charts(v) for k, v in value.items() if k != "reliability"}
    return value


def _type_of(spec: Any) -> str:
    return f"{spec.dtype.name}{['?' if d is None else d for d in spec.shape]}".replace("'", "")
