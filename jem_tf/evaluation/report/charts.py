"""Charts of the metrics as SVG text.

Not here: numbers. Everything that is drawn is in `metrics.json`.
"""

import io
from collections.abc import Callable
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0b6e99", "#c2571a", "#4c8c2b", "#7a4fa3", "#b8860b", "#5f6b76", "#b0305c", "#2a9d8f")
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "text.parse_math": False,  # names may contain dollar signs
    "svg.fonttype": "none",  # text stays text: small files that can be searched and read aloud
    "svg.hashsalt": "jem_tf",  # equal charts have equal bytes
}
MAX_CONFUSION_CLASSES = 30
MARKERS = {"apgd_linf": "s", "apgd_l2": "s", "boundary": "^", "pointwise": "x"}  # PGD has circles
TRAINING_PANELS = {  # columns of log.csv by the title of their panel
    "losses": ("classification_loss", "generative_loss", "val_classification_loss"),
    "energy": ("energy_data", "energy_samples"),
    "accuracy": ("accuracy", "val_accuracy"),
    "sampler": ("step_size",),
}

Models = dict[str, dict[str, Any]]


def draw(results: dict[str, Any]) -> dict[str, str]:
    """Return the SVG text of all charts that `results` has numbers for, by name."""
    import matplotlib

    models: Models = results["models"]
    l2_kinds = ("l2", "apgd_l2", "boundary", "pointwise")
    drawings: dict[str, Callable[[], Figure | None]] = {
        "reliability": lambda: _draw_reliability(models),
        "risk_coverage": lambda: _draw_risk_coverage(models),
        "confusion": lambda: _draw_confusion(models, results["class_names"]),
        "fused": lambda: _draw_histograms(models, "fused", "fused score"),
        "log_density": lambda: _draw_histograms(models, "log_density", "log p(x) + constant"),
        "gradient_norm": lambda: _draw_histograms(models, "gradient_norm", "−|∂ log p(x) / ∂x|"),
        "attack_linf": lambda: _draw_attacks(
            models, ("linf", "apgd_linf"), "largest change of a pixel, of 255", factor=255
        ),
        "attack_l2": lambda: _draw_attacks(
            models, l2_kinds, "Euclidean length, pixels from 0 to 1"
        ),
        "training": lambda: _draw_training(models),
    }
    charts = {}
    with matplotlib.rc_context(STYLE):
        for name, make in drawings.items():
            figure = make()
            if figure is not None:
                text = io.StringIO()
                figure.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None})
                charts[name] = text.getvalue()
    return charts


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def _with_key(models: Models, key: str) -> Models:
    return {name: model for name, model in models.items() if key in model}


def _draw_reliability(models: Models) -> "Figure | None":
    models = _with_key(models, "calibration")
    if not models:
        return None
    figure = _figure(4.2 * len(models), 4.4)
    axes = figure.subplots(2, len(models), squeeze=False, sharex=True, height_ratios=[3, 1])
    for column, (name, model) in enumerate(models.items()):
        top, bottom = axes[0, column], axes[1, column]
        top.plot([0, 1], [0, 1], color="#999999", linewidth=1, linestyle="--")
        for colour, key, marker in ((COLOURS[0], "before", "o"), (COLOURS[1], "after", "s")):
            bins = model["calibration"][key]
            label = f"{key} scaling, ECE {bins['ece']:.1%}"
            top.plot(bins["confidence"], bins["accuracy"], marker, color=colour, label=label)
        before = model["calibration"]["before"]
        total = sum(before["count"])
        shares = [100 * count / total for count in before["count"]]
        bottom.bar(before["confidence"], shares, width=0.05, color=COLOURS[0])
        top.set(title=name, ylim=(0, 1.02), xlim=(0, 1.02))
        bottom.set(xlabel="confidence")
        top.legend(loc="lower right", fontsize=8)
    axes[0, 0].set_ylabel("accuracy")
    axes[1, 0].set_ylabel("% of rows")
    return figure


def _draw_risk_coverage(models: Models) -> "Figure | None":
    models = _with_key(models, "selective")
    if not models:
        return None
    figure = _figure(5.2, 3.2)
    axis = figure.subplots()
    for colour, (name, model) in zip(COLOURS, models.items()):
        curve = model["selective"]
        axis.plot(
            [100 * coverage for coverage in curve["coverage"]],
            [100 * risk for risk in curve["risk"]],
            color=colour,
            label=f"{name}, area {curve['aurc']:.4f}",
        )
    axis.set(xlabel="% of inputs, most confident first", ylabel="% wrong among them")
    axis.legend()
    return figure


def _draw_confusion(models: Models, classes: list[str]) -> "Figure | None":
    models = _with_key(models, "classification")
    if not models or len(classes) > MAX_CONFUSION_CLASSES:
        return None
    name, model = next(iter(models.items()))
    counts = model["classification"]["confusion"]
    figure = _figure(1.8 + 0.42 * len(classes), 1.5 + 0.38 * len(classes))
    axis = figure.subplots()
    axis.grid(False)
    shares = [[count / max(sum(row), 1) for count in row] for row in counts]
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for i, row in enumerate(counts):
        for j, count in enumerate(row):
            if count:
                colour = "white" if shares[i][j] > 0.5 else "black"
                axis.text(j, i, count, ha="center", va="center", color=colour, fontsize=8)
    rotation = 90 if max(map(len, classes)) > 2 else 0
    axis.set_xticks(range(len(classes)), classes, rotation=rotation)
    axis.set_yticks(range(len(classes)), classes)
    axis.set(xlabel="predicted", ylabel="label", title=name)
    return figure


def _draw_histograms(models: Models, kind: str, label: str) -> "Figure | None":
    models = {n: m for n, m in models.items() if kind in m.get("histograms", {})}
    if not models:
        return None
    figure = _figure(4.6 * len(models), 3.4)
    axes = figure.subplots(1, len(models), squeeze=False)[0]
    for axis, (name, model) in zip(axes, models.items()):
        histogram = model["histograms"][kind]
        for colour, (set_name, shares) in zip(cycle(COLOURS), histogram["shares"].items()):
            axis.stairs(shares, histogram["edges"], color=colour, fill=True, alpha=0.25)
            axis.stairs(shares, histogram["edges"], color=colour, label=set_name)
        axis.set(title=name, xlabel=label, yticks=[])
    axes[0].legend(fontsize=8)
    return figure


def _draw_attacks(
    models: Models, kinds: tuple[str, ...], label: str, factor: float = 1
) -> "Figure | None":
    lines = [
        (colour, style, " ".join(filter(None, (name, variant))), curve)
        for colour, (name, model) in zip(COLOURS, models.items())
        for style, (variant, curves) in zip(
            cycle(("-", "--", ":")), (model.get("robustness") or {}).items()
        )
        for curve in curves
        if curve["attack"] in kinds
    ]
    if not lines:
        return None
    figure = _figure(6.2, 3.6)
    axis = figure.subplots()
    for colour, style, name, curve in lines:
        marker = MARKERS.get(curve["attack"], "o")
        axis.plot(
            [factor * epsilon for epsilon in curve["epsilons"]],
            [100 * accuracy for accuracy in curve["accuracy"]],
            style,
            marker=marker,
            markersize=4,
            color=colour,
            label=name if marker == "o" else f"{name}, {curve['attack']}",
        )
    axis.set(xlabel=label, ylabel="accuracy, %", ylim=(-2, 102))
    axis.legend(fontsize=8)
    return figure


def _draw_training(models: Models) -> "Figure | None":
    models = _with_key(models, "training")
    if not models:
        return None
    log = next(iter(models.values()))["training"]
    columns = {title: [k for k in keys if k in log] for title, keys in TRAINING_PANELS.items()}
    panels = [(title, keys) for title, keys in columns.items() if keys]
    if not panels:
        return None
    figure = _figure(3.4 * len(panels), 3)
    rollbacks = np.flatnonzero(np.diff(log.get("rollbacks", []), prepend=0.0))
    for axis, (title, keys) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels):
        for colour, key in zip(COLOURS, keys):
            axis.plot(range(1, len(log[key]) + 1), log[key], color=colour, label=key)
        for epoch in rollbacks:
            axis.axvline(epoch + 1, color="black", linestyle=":", linewidth=1)
        axis.set(title=title, xlabel="epoch")
        axis.legend(fontsize=8)
    figure.tight_layout()
    return figure
