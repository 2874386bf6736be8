"""Metrics as charts: SVG text, to be put into the page and beside it.

Not here: numbers. Everything drawn is in `metrics.json`.
"""

import io
from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np

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
    "text.parse_math": False,  # names may have dollars
    "svg.fonttype": "none",  # text stays text: small files, can be searched and read out
    "svg.hashsalt": "jem_tf",  # the same chart has the same bytes
}

Models = dict[str, dict[str, Any]]


def draw(results: dict[str, Any]) -> dict[str, str]:
    """All charts that the results have numbers for, by name."""
    import matplotlib

    models: Models = results["models"]
    makers: dict[str, Callable[[Models, Any], Any]] = {
        "reliability": _reliability,
        "risk_coverage": _risk_coverage,
        "confusion": lambda m, f: _confusion(m, f, results["class_names"]),
        "log_density": lambda m, f: _histograms(m, f, "log_density", "log p(x) + constant"),
        "gradient_norm": lambda m, f: _histograms(m, f, "gradient_norm", "−|∂ log p(x) / ∂x|"),
        "attack_linf": lambda m, f: _attacks(m, f, ("linf",), "largest change of a pixel, of 255"),
        "attack_l2": lambda m, f: _attacks(
            m, f, ("l2", "boundary", "pointwise"), "Euclidean length, pixels from 0 to 1"
        ),
        "training": _training,
    }
    charts = {}
    with matplotlib.rc_context(STYLE):
        from matplotlib.figure import Figure

        for name, make in makers.items():
            figure = make(models, Figure)
            if figure is not None:
                text = io.StringIO()
                figure.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None})
                charts[name] = text.getvalue()
    return charts


def _with(models: Models, *keys: str) -> Models:
    return {name: m for name, m in models.items() if all(key in m for key in keys)}


def _reliability(models: Models, figure: Any) -> Any:
    models = _with(models, "calibration")
    if not models:
        return None
    made = figure(figsize=(4.2 * len(models), 4.4))
    axes = made.subplots(2, len(models), squeeze=False, sharex=True, height_ratios=[3, 1])
    for column, (name, model) in enumerate(models.items()):
        top, bottom = axes[0, column], axes[1, column]
        top.plot([0, 1], [0, 1], color="#999999", linewidth=1, linestyle="--")
        for colour, key, marker in ((COLOURS[0], "before", "o"), (COLOURS[1], "after", "s")):
            found = model["calibration"][key]
            label = f"{key} scaling, ECE {found['ece']:.1%}"
            top.plot(found["confidence"], found["accuracy"], marker, color=colour, label=label)
        before = model["calibration"]["before"]
        total = sum(before["count"])
        shares = [100 * c / total for c in before["count"]]
        bottom.bar(before["confidence"], shares, width=0.05, color=COLOURS[0])
        top.set(title=name, ylim=(0, 1.02), xlim=(0, 1.02))
        bottom.set(xlabel="confidence")
        top.legend(loc="lower right", fontsize=8)
    axes[0, 0].set_ylabel("share that is right")
    axes[1, 0].set_ylabel("% of rows")
    return made


def _risk_coverage(models: Models, figure: Any) -> Any:
    models = _with(models, "selective")
    if not models:
        return None
    made = figure(figsize=(5.2, 3.2))
    axis = made.subplots()
    for colour, (name, model) in zip(COLOURS, models.items()):
        found = model["selective"]
        axis.plot(
            [100 * c for c in found["coverage"]],
            [100 * r for r in found["risk"]],
            color=colour,
            label=f"{name}, area {found['aurc']:.4f}",
        )
    axis.set(xlabel="% of inputs answered, most confident first", ylabel="% wrong among them")
    axis.legend()
    return made


def _confusion(models: Models, figure: Any, classes: list[str]) -> Any:
    models = _with(models, "classification")
    if not models or len(classes) > 30:
        return None
    name, model = next(iter(models.items()))
    counts = model["classification"]["confusion"]
    made = figure(figsize=(1.8 + 0.42 * len(classes), 1.5 + 0.38 * len(classes)))
    axis = made.subplots()
    axis.grid(False)
    shares = [[c / max(sum(row), 1) for c in row] for row in counts]
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for i, row in enumerate(counts):
        for j, count in enumerate(row):
            if count:
                colour = "white" if shares[i][j] > 0.5 else "black"
                axis.text(j, i, count, ha="center", va="center", color=colour, fontsize=8)
    turned = 90 if max(map(len, classes)) > 2 else 0
    axis.set_xticks(range(len(classes)), classes, rotation=turned)
    axis.set_yticks(range(len(classes)), classes)
    axis.set(xlabel="predicted", ylabel="label", title=name)
    return made


def _histograms(models: Models, figure: Any, kind: str, label: str) -> Any:
    models = {n: m for n, m in models.items() if kind in m.get("histograms", {})}
    if not models:
        return None
    made = figure(figsize=(4.6 * len(models), 3.4))
    axes = made.subplots(1, len(models), squeeze=False)[0]
    for axis, (name, model) in zip(axes, models.items()):
        found = model["histograms"][kind]
        for colour, (one, shares) in zip(cycle(COLOURS), found["shares"].items()):
            axis.stairs(shares, found["edges"], color=colour, fill=True, alpha=0.25)
            axis.stairs(shares, found["edges"], color=colour, label=one)
        axis.set(title=name, xlabel=label, yticks=[])
    axes[0].legend(fontsize=8)
    return made


def _attacks(models: Models, figure: Any, kinds: tuple[str, ...], label: str) -> Any:
    lines = [
        (colour, style, " ".join(filter(None, (name, variant))), curve)
        for colour, (name, model) in zip(COLOURS, models.items())
        for style, (variant, curves) in zip(cycle(("-", "--", ":")), _variants(model).items())
        for curve in curves
        if curve["attack"] in kinds
    ]
    if not lines:
        return None
    made = figure(figsize=(6.2, 3.6))
    axis = made.subplots()
    scale = 255 if kinds == ("linf",) else 1
    for colour, style, what, curve in lines:
        marker = {"boundary": "^", "pointwise": "x"}.get(curve["attack"], "o")
        axis.plot(
            [scale * e for e in curve["epsilons"]],
            [100 * a for a in curve["accuracy"]],
            style,
            marker=marker,
            markersize=4,
            color=colour,
            label=what if marker == "o" else f"{what}, {curve['attack']}",
        )
    axis.set(xlabel=label, ylabel="% right", ylim=(-2, 102))
    axis.legend(fontsize=8)
    return made


def _training(models: Models, figure: Any) -> Any:
    models = _with(models, "training")
    if not models:
        return None
    log = next(iter(models.values()))["training"]
    wanted = {
        "losses": ("classification_loss", "generative_loss", "val_classification_loss"),
        "energy": ("energy_data", "energy_samples"),
        "accuracy": ("accuracy", "val_accuracy"),
        "sampler": ("step_size",),
    }
    found = {title: [key for key in keys if key in log] for title, keys in wanted.items()}
    panels = [(title, keys) for title, keys in found.items() if keys]
    if not panels:
        return None
    made = figure(figsize=(3.4 * len(panels), 3))
    for axis, (title, keys) in zip(made.subplots(1, len(panels), squeeze=False)[0], panels):
        for colour, key in zip(COLOURS, keys):
            axis.plot(range(1, len(log[key]) + 1), log[key], color=colour, label=key)
        for epoch in np.flatnonzero(np.diff(log.get("rollbacks", []), prepend=0.0)):
            axis.axvline(epoch + 1, color="black", linestyle=":", linewidth=1)
        axis.set(title=title, xlabel="epoch")
        axis.legend(fontsize=8)
    made.tight_layout()
    return made


def _variants(model: dict[str, Any]) -> dict[str, Any]:
    return model.get("robustness") or {}
