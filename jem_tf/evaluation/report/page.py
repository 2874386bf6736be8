"""Metrics as one page that a customer can read: self-contained, without network or script.

Not here: measuring, drawing. The words are in `report.html.j2`, the answers on top come from the
numbers.
"""

import base64
import importlib.util
from importlib import resources
from pathlib import Path
from typing import Any

from jem_tf.evaluation.measures.robustness import ATTACKS
from jem_tf.evaluation.report import charts

MEDIA = {".png": "image/png", ".gif": "image/gif"}
SIZES = (4 / 255, 12 / 255, 26 / 255)  # of the attacks in the table


def check_installed() -> None:
    """Raise `ValueError` now, not after minutes of measuring, if the report cannot be made."""
    missing = [p for p in ("matplotlib", "jinja2", "foolbox") if not importlib.util.find_spec(p)]
    if missing:
        raise ValueError(f"The report needs {', '.join(missing)}: pip install 'jem_tf[report]'")


def write(out: Path, results: dict[str, Any]) -> Path:
    """`report.html` and its charts as SVG files, from the contents of `metrics.json`."""
    import jinja2

    drawn = charts.draw(results)
    for name, svg in drawn.items():
        (out / f"{name}.svg").write_text(svg)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(percent=_percent, number=_number)
    template = resources.files("jem_tf.evaluation.report").joinpath("report.html.j2").read_text()
    page = environment.from_string(template).render(
        results=results,
        models=results["models"],
        charts={name: _inline(svg) for name, svg in drawn.items()},
        picture=lambda name: _embedded(out / name),
        answers=answers(results),
        rows=rows(results),
        attacks=ATTACKS,
    )
    path = out / "report.html"
    path.write_text(page)
    return path


def rows(results: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """The figures of all models side by side: labels, and a value for each model."""
    models = list(results["models"].values())
    table: list[tuple[str, list[str]]] = []

    def add(label: str, form: Any, *keys: Any) -> None:
        values = [_get(model, *keys) for model in models]
        if any(v is not None for v in values):
            table.append((label, [form(v) for v in values]))

    add("accuracy", _percent, "classification", "accuracy")
    add("negative log-likelihood, nats", _number, "classification", "nll")
    add("Brier score", _number, "classification", "brier")
    add("calibration error (ECE)", _percent, "calibration", "before", "ece")
    add("ECE, equally filled bins", _percent, "calibration", "adaptive", "ece")
    add("largest error of a bin (MCE)", _percent, "calibration", "before", "mce")
    add("ECE after temperature scaling", _percent, "calibration", "after", "ece")
    add("area under risk–coverage", _number, "selective", "aurc")
    for kind in ("gradient_norm", "log_density", "max_probability"):
        names = {n: 0 for m in models for n in _get(m, "ood", kind) or ()}
        for name in names:
            add(f"AUROC {kind}: {name}", _number, "ood", kind, name, "auroc")
    for kind in ("linf", "l2"):
        for size in SIZES if kind == "linf" else (0.5, 1.0, 2.0):
            label = f"{round(size * 255)}/255" if kind == "linf" else f"{size:g}"
            values = [accuracy_at(model, kind, size) for model in models]
            if any(v is not None for v in values):
                table.append((f"accuracy, PGD {kind} ε = {label}", [_percent(v) for v in values]))
    return table


def table(results: dict[str, Any]) -> str:
    """`rows` as text."""
    lines = [("", list(results["models"])), *rows(results)]
    left = max(len(label) for label, _ in lines)
    width = max(len(value) for _, values in lines for value in values) + 3
    return "\n".join(
        label.ljust(left) + "".join(v.rjust(width) for v in values) for label, values in lines
    )


def answers(results: dict[str, Any]) -> list[tuple[str, str]]:
    """Four questions of a customer, answered from the numbers."""
    (_, model), *others = results["models"].items()
    other_name, other = others[0] if others else ("", {})
    found = []

    def beside(value: Any, form: Any) -> str:
        return "" if value is None else f" ({other_name}: {form(value)})"

    if "classification" in model:
        ece = model["calibration"]["before"]["ece"]
        found.append(
            (
                "Can its confidence be trusted?",
                f"It is right in {_percent(model['classification']['accuracy'])} of cases"
                f"{beside(_get(other, 'classification', 'accuracy'), _percent)}. The confidence it "
                f"states is off by {_percent(ece)} on average"
                f"{beside(_get(other, 'calibration', 'before', 'ece'), _percent)}, and by "
                f"{_percent(model['calibration']['after']['ece'])} once scaled, as exports do.",
            )
        )
    kind = next(
        (
            k
            for k in ("gradient_norm", "log_density", "max_probability")
            if k in (model.get("ood") or {})
        ),
        None,
    )
    if kind and model["ood"][kind]:
        sets = model["ood"][kind]
        worst = min(sets, key=lambda s: sets[s]["auroc"])
        found.append(
            (
                "Does it know what it does not know?",
                f"Shown an input that belongs and one that does not, its {kind.replace('_', ' ')} "
                f"picks the right one in "
                + ", ".join(f"{_percent(d['auroc'])} ({s})" for s, d in sets.items())
                + f" of cases. Hardest: {worst}"
                + beside(_get(other, "ood", kind, worst, "auroc"), _percent)
                + ".",
            )
        )
    fooled = accuracy_at(model, "linf", 12 / 255)
    if fooled is not None:
        found.append(
            (
                "How easily is it fooled?",
                f"With every pixel changed by up to 12 of 255 gray levels, by the strongest attack "
                f"that was tried, it is still right in {_percent(fooled)} of cases"
                f"{beside(accuracy_at(other, 'linf', 12 / 255), _percent)}.",
            )
        )
    if "generation" in model:
        made = model["generation"]
        found.append(
            (
                "Has it learned what the data looks like?",
                f"Of {made['samples']} samples that it drew from noise, another classifier "
                f"recognised {_percent(made['quality']['recognised'])} as the class they were "
                f"meant to be (of real data, {_percent(made['judge_accuracy'])}). They are "
                f"{_number(made['quality']['diversity'])} times as diverse as the data, and "
                f"{_percent(made['neighbours']['copies'])} are as near to a training input as the "
                "nearest 1 % of test inputs are.",
            )
        )
    return found


def accuracy_at(model: dict[str, Any], kind: str, size: float) -> float | None:
    """Accuracy of the model itself under an attack of `size`, if that was measured."""
    for curve in (model.get("robustness") or {}).get("", []):
        if curve["attack"] == kind:
            for epsilon, accuracy in zip(curve["epsilons"], curve["accuracy"]):
                if abs(epsilon - size) < 1e-9:
                    return accuracy
    return None


def _get(value: Any, *keys: Any) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}\N{NO-BREAK SPACE}%"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _inline(svg: str) -> str:
    """An SVG file as an element of a page."""
    import markupsafe

    return markupsafe.Markup(svg[svg.index("<svg") :])


def _embedded(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f"data:{MEDIA[path.suffix]};base64,{data}"
