"""Draws the diagrams of "How the code is organised" as SVG files beside this script.

    python docs/diagrams/draw.py

Not here: which imports are allowed. `pyproject.toml` has the rules that `make lint` checks.
"""

from html import escape
from pathlib import Path

WIDTH = 960
FONT = "font-family='Helvetica, Arial, sans-serif'"
INK, GRAY, LINE = "#1a1a1a", "#555555", "#888888"

# Layer, its colour, and its packages with the question that each answers.
LAYERS = [
    (
        "6",
        "#dce6f5",
        [("cli/", "what does the user type?"), ("scoring/", "scores of millions of rows")],
    ),
    (
        "5",
        "#dcefe3",
        [
            ("training/", "from recipe to run"),
            ("evaluation/", "how good is it?"),
            ("saved_model/", "what is served?"),
            ("pytorch/", "checkpoints"),
        ],
    ),
    ("4", "#f7edd3", [("callbacks/", "what if it diverges, or the machine dies?")]),
    ("3", "#f6e0d5", [("model/", "how does a batch become an update?")]),
    (
        "2",
        "#f3dbe4",
        [("objectives/", "what is learned?"), ("detection/", "is this input like the data?")],
    ),
    (
        "1",
        "#e5e0f3",
        [
            ("sampling/", "how do chains move?"),
            ("backbones/", "which network?"),
            ("data/", "which rows?"),
            ("composition/", "several models as one"),
            ("likelihood/", "exact log p(x)"),
        ],
    ),
    (
        "0",
        "#eaeaea",
        [
            ("energy.py, annealing.py", "what do logits say? log Z"),
            ("_tf/, portable.py", "state, randomness, devices"),
            ("checks.py, drift.py, pictures.py", "small helpers"),
        ],
    ),
]
APART = [
    ("server/", "TF Serving's protocol", "SavedModels only"),
    ("client/", "asks a server", "the wire only"),
]

# One path for each row: a title, a colour, and steps of what happens and where.
PATHS = [
    (
        "One training batch",
        "#f6e0d5",
        [
            ("draw rows", "data/dataset.py"),
            ("train_step", "model/jem.py"),
            ("draw chains", "sampling/replay.py"),
            ("run chains", "sampling/sgld.py"),
            ("loss", "objectives/joint.py"),
            ("finite gradients", "model/health.py"),
            ("update weights", "Keras optimizer"),
            ("write chains back", "sampling/replay.py"),
        ],
    ),
    (
        "One evaluation",
        "#dcefe3",
        [
            ("open the model", "evaluation/subjects/"),
            ("order of parts", "evaluation/pipeline.py"),
            ("measure a part", "evaluation/parts/"),
            ("numbers", "evaluation/measures/"),
            ("metrics.json", "evaluation/pipeline.py"),
            ("report.html", "evaluation/report/"),
        ],
    ),
    (
        "One export",
        "#f7edd3",
        [
            ("load the model", "model/loading.py"),
            ("fit threshold", "saved_model/fitted.py"),
            ("trace functions", "saved_model/signatures.py"),
            ("write files", "saved_model/exporter.py"),
            ("warm-up requests", "saved_model/warmup.py"),
            ("rename to version", "saved_model/layout.py"),
        ],
    ),
    (
        "One request",
        "#dce6f5",
        [
            ("send", "client/client.py"),
            ("receive (REST or gRPC)", "server/rest_api.py"),
            ("count and answer", "server/service.py"),
            ("choose a version", "server/manager.py"),
            ("check inputs", "server/servable.py"),
            ("join a batch", "server/batching.py"),
            ("run the graph", "SavedModel"),
        ],
    ),
]


def text(x: float, y: float, words: str, size: int = 14, colour: str = INK, **style: str) -> str:
    """Return centred text; `style` holds more attributes of SVG."""
    family = "" if "font_family" in style else f" {FONT}"
    attributes = "".join(f" {key.replace('_', '-')}='{value}'" for key, value in style.items())
    anchor = "" if "text_anchor" in style else " text-anchor='middle'"
    return (
        f"<text x='{x:g}' y='{y:g}'{family} font-size='{size}' fill='{colour}'{anchor}{attributes}>"
        f"{escape(words)}</text>"
    )


def box(x: float, y: float, width: float, height: float, fill: str) -> str:
    """Return a rectangle with round corners."""
    return (
        f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' rx='5' fill='{fill}' "
        f"stroke='{LINE}'/>"
    )


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    """Return a line that ends in an arrow."""
    return (
        f"<line x1='{x1:g}' y1='{y1:g}' x2='{x2:g}' y2='{y2:g}' stroke='{GRAY}' "
        "stroke-width='1.5' marker-end='url(#head)'/>"
    )


def svg(height: float, title: str, parts: list[str]) -> str:
    """Return a whole file."""
    head = (
        "<defs><marker id='head' markerWidth='9' markerHeight='8' refX='8' refY='4' "
        f"orient='auto'><path d='M0,0 L9,4 L0,8 z' fill='{GRAY}'/></marker></defs>"
    )
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height:g}' role='img'>",
            f"<title>{escape(title)}</title>",
            head,
            f"<rect width='{WIDTH}' height='{height:g}' fill='white'/>",
            *parts,
            "</svg>\n",
        ]
    )


def draw_layers() -> str:
    """Return the layers from top to bottom, and the packages beside them."""
    left, right, step, height = 64, 730, 68, 54
    bottom = 16 + len(LAYERS) * step
    parts = [text(28, 30, "layer", 12, GRAY)]
    for row, (number, colour, packages) in enumerate(LAYERS):
        y = 16 + row * step
        parts.append(text(28, y + 34, number, 17, GRAY))
        width = (right - left - 10 * (len(packages) - 1)) / len(packages)
        for column, (name, question) in enumerate(packages):
            x = left + column * (width + 10)
            parts.append(box(x, y, width, height, colour))
            parts.append(
                text(x + width / 2, y + 24, name, 13 if len(name) < 28 else 12, font_weight="bold")
            )
            parts.append(text(x + width / 2, y + 43, question, 11, GRAY))
    parts.append(arrow(right + 24, 24, right + 24, bottom - 20))
    middle = (16 + bottom) / 2
    turned = f"rotate(90 {right + 36} {middle:g})"
    parts.append(text(right + 36, middle, "imports go down only", 13, GRAY, transform=turned))
    for row, (name, first, second) in enumerate(APART):
        y = 16 + step + row * 2 * step
        parts.append(box(right + 66, y, 150, 96, "white"))
        parts.append(text(right + 141, y + 32, name, 15, font_weight="bold"))
        parts.append(text(right + 141, y + 55, first, 12, GRAY))
        parts.append(text(right + 141, y + 75, second, 12, GRAY))
    parts.append(text(right + 141, 16 + step - 12, "apart", 13, GRAY))
    return svg(bottom, "Packages of jem_tf in layers", parts)


def draw_paths() -> str:
    """Return the steps of a batch, an evaluation, an export and a request, in rows of four."""
    columns, gap, left = 4, 26, 20
    width = (WIDTH - 2 * left - (columns - 1) * gap) / columns
    height, parts, y = 50, [], 14.0
    for title, colour, steps in PATHS:
        parts.append(text(left, y + 16, title, 17, text_anchor="start", font_weight="bold"))
        y += 30
        for index, (what, where) in enumerate(steps):
            row, column = divmod(index, columns)
            x, top = left + column * (width + gap), y + row * (height + 18)
            parts.append(box(x, top, width, height, colour))
            parts.append(text(x + width / 2, top + 21, f"{index + 1}. {what}", 15))
            parts.append(text(x + width / 2, top + 40, where, 12, GRAY, font_family="monospace"))
            if column:
                parts.append(arrow(x - gap + 2, top + height / 2, x - 3, top + height / 2))
        y += -(-len(steps) // columns) * (height + 18) + 16
    return svg(y, "The steps of a batch, an evaluation, an export and a request", parts)


DIAGRAMS = {"layers.svg": draw_layers, "paths.svg": draw_paths}

if __name__ == "__main__":
    for file, draw in DIAGRAMS.items():
        (Path(__file__).parent / file).write_text(draw())
