"""The figures of an evaluation as text: a table of all models, and answers to four questions.

Not here: the page (`page.py`). The input is always the contents of `metrics.json`.
"""

from collections.abc import Callable, Iterator
from typing import Any

from jem_tf.detection.detector import FUSED
from jem_tf.energy import OOD_SCORES

SIZES = {  # of the attacks in the table, of curves with more than `MAX_SIZES`
    "linf": (4 / 255, 12 / 255, 26 / 255),
    "l2": (0.5, 1.0, 2.0),
}
MAX_SIZES = 5
FOOLED_SIZE = 12 / 255  # of the attack in the answers

Format = Callable[[float | None], str]


def percent(value: float | None) -> str:
    """Return a share as a percentage; a dash for None."""
    return "–" if value is None else f"{100 * value:.1f}\N{NO-BREAK SPACE}%"


def number(value: float | None) -> str:
    """Return a number with three decimals; a dash for None."""
    return "–" if value is None else f"{value:.3f}"


def rows(results: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the rows of the table: a label, and a value for each model."""
    models = list(results["models"].values())
    return [
        (label, [form(value) for value in values])
        for label, form, values in _values(models)
        if any(value is not None for value in values)
    ]


def table(results: dict[str, Any]) -> str:
    """Return `rows` as text in columns, headed by the names of the models."""
    lines = [("", list(results["models"])), *rows(results)]
    left = max(len(label) for label, _ in lines)
    width = max(len(value) for _, values in lines for value in values) + 3
    return "\n".join(
        label.ljust(left) + "".join(v.rjust(width) for v in values) for label, values in lines
    )


def answers(results: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the questions that the results can answer, and the answers."""
    (_, model), *others = results["models"].items()
    other_name, other = others[0] if others else ("", {})

    def beside(value: Any, form: Format) -> str:
        return "" if value is None else f" ({other_name}: {form(value)})"

    candidates = (
        _answer_on_confidence(model, other, beside),
        _answer_on_detection(model, other, beside),
        _answer_on_attacks(model, other, beside),
        _answer_on_samples(model),
    )
    return [answer for answer in candidates if answer is not None]


def accuracy_at(model: dict[str, Any], kind: str, size: float) -> float | None:
    """Return the accuracy of the model itself under an attack of `size`, if it was measured."""
    for curve in (model.get("robustness") or {}).get("", []):
        if curve["attack"] == kind:
            for epsilon, accuracy in zip(curve["epsilons"], curve["accuracy"]):
                if abs(epsilon - size) < 1e-9:
                    return accuracy
    return None


def _values(models: list[dict[str, Any]]) -> Iterator[tuple[str, Format, list[Any]]]:
    """Yield the label, the format and the values of every row of the table."""
    for label, form, *keys in (
        ("accuracy", percent, "classification", "accuracy"),
        ("negative log-likelihood, nats", number, "classification", "nll"),
        ("Brier score", number, "classification", "brier"),
        ("calibration error (ECE)", percent, "calibration", "before", "ece"),
        ("ECE, equally filled bins", percent, "calibration", "adaptive", "ece"),
        ("largest error of a bin (MCE)", percent, "calibration", "before", "mce"),
        ("ECE after temperature scaling", percent, "calibration", "after", "ece"),
        ("ECE to expect by chance", percent, "calibration", "after", "by_chance"),
        ("area under risk–coverage", number, "selective", "aurc"),
    ):
        yield label, form, [_get(model, *keys) for model in models]
    for kind in (FUSED, *OOD_SCORES):
        names = {name: None for model in models for name in _get(model, "ood", kind) or ()}
        for name in names:
            aurocs = [_get(model, "ood", kind, name, "auroc") for model in models]
            yield f"AUROC {kind}: {name}", number, aurocs
        if len(names) > 1:
            yield f"AUROC {kind}: worst", number, [summary(model, kind)[0] for model in models]
            yield f"AUROC {kind}: mean", number, [summary(model, kind)[1] for model in models]
    false_alarms = [_get(model, "verdict", "false_alarms") for model in models]
    yield "flagged by the verdict: test data", percent, false_alarms
    for name in {name: None for m in models for name in _get(m, "verdict", "flagged") or ()}:
        shares = [_get(model, "verdict", "flagged", name) for model in models]
        yield f"flagged by the verdict: {name}", percent, shares
    for label, key in (("", "aurc"), (" without the verdict", "aurc_without")):
        areas = [_get(model, "verdict", key) for model in models]
        yield f"area under risk–coverage, errors and OOD{label}", number, areas
    for method, prefix in (("PGD", ""), ("APGD", "apgd_")):
        for norm in SIZES:
            for size in _sizes(models, prefix + norm, SIZES[norm]):
                text = f"{255 * size:.3g}/255" if norm == "linf" else f"{size:g}"
                values = [accuracy_at(model, prefix + norm, size) for model in models]
                yield f"accuracy, {method} {norm} ε = {text}", percent, values


def _sizes(
    models: list[dict[str, Any]], kind: str, default: tuple[float, ...]
) -> tuple[float, ...]:
    """The sizes of an attack in the table: all that were asked for, or some of the default ones."""
    curves = [c for m in models for c in _get(m, "robustness", "") or () if c["attack"] == kind]
    sizes = tuple(size for size in curves[0]["epsilons"] if size > 0) if curves else ()
    return sizes if 0 < len(sizes) <= MAX_SIZES else default


def _answer_on_confidence(model: Any, other: Any, beside: Any) -> tuple[str, str] | None:
    if "classification" not in model:
        return None
    before, after = (model["calibration"][key]["ece"] for key in ("before", "after"))
    return (
        "Can its confidence be trusted?",
        f"It is right in {percent(model['classification']['accuracy'])} of cases"
        f"{beside(_get(other, 'classification', 'accuracy'), percent)}. Its confidence is off by "
        f"{percent(before)} on average"
        f"{beside(_get(other, 'calibration', 'before', 'ece'), percent)}, and by "
        f"{percent(after)} after temperature scaling, which exports include.",
    )


def summary(model: dict[str, Any], kind: str) -> tuple[float | None, float | None]:
    """Return the worst and the mean AUROC of a score over the sets; None if it has none."""
    results = _get(model, "ood", kind) or {}
    aurocs = [result["auroc"] for result in results.values()]
    return (min(aurocs), sum(aurocs) / len(aurocs)) if aurocs else (None, None)


def _answer_on_detection(model: Any, other: Any, beside: Any) -> tuple[str, str] | None:
    detections = model.get("ood") or {}
    kind = next((kind for kind in (FUSED, *OOD_SCORES) if kind in detections), None)
    if kind is None or not detections[kind]:
        return None
    aurocs = {name: result["auroc"] for name, result in detections[kind].items()}
    hardest = min(aurocs, key=lambda name: aurocs[name])
    shares = ", ".join(f"{percent(auroc)} ({name})" for name, auroc in aurocs.items())
    return (
        "Does it detect out-of-distribution inputs?",
        f"Given an in-distribution and an out-of-distribution input, its {kind.replace('_', ' ')} "
        f"score picks the right one in {shares} of cases. Hardest: {hardest}"
        f"{beside(_get(other, 'ood', kind, hardest, 'auroc'), percent)}.{_missed(model)}",
    )


def _missed(model: dict[str, Any]) -> str:
    """Return which of the sets the verdict lets pass, in a sentence; empty without a verdict."""
    verdict = model.get("verdict")
    if verdict is None:
        return ""
    passed = {name: 1 - share for name, share in verdict["flagged"].items() if share < 0.95}
    misses = ", ".join(f"{percent(share)} of {name}" for name, share in passed.items())
    return (
        f" Its verdict flags {percent(verdict['false_alarms'])} of the test data, and misses "
        f"{misses or 'less than 5 % of each of these sets'}."
    )


def _answer_on_attacks(model: Any, other: Any, beside: Any) -> tuple[str, str] | None:
    accuracy, other_accuracy = _lowest_accuracy(model), _lowest_accuracy(other)
    if accuracy is None:
        return None
    return (
        "How easily is it fooled?",
        f"With every pixel changed by up to {round(FOOLED_SIZE * 255)} of 255 gray levels, by the "
        f"strongest attack that was tried, it is still right in {percent(accuracy)} of cases"
        f"{beside(other_accuracy, percent)}.",
    )


def _lowest_accuracy(model: dict[str, Any]) -> float | None:
    """Return the accuracy under the strongest L∞ attack of `FOOLED_SIZE`, if one was measured."""
    values = [accuracy_at(model, kind, FOOLED_SIZE) for kind in ("linf", "apgd_linf")]
    return min((value for value in values if value is not None), default=None)


def _answer_on_samples(model: Any) -> tuple[str, str] | None:
    if "generation" not in model:
        return None
    results = model["generation"]
    return (
        "Has it learned what the data looks like?",
        f"Of {results['samples']} samples, another classifier recognised "
        f"{percent(results['quality']['recognised'])} as the intended class (of real data, "
        f"{percent(results['judge_accuracy'])}). They are "
        f"{number(results['quality']['diversity'])} times as diverse as the data, and "
        f"{percent(results['neighbours']['copies'])} are as near to a training input as the "
        "nearest 1 % of test inputs are.",
    )


def _get(value: Any, *keys: str) -> Any:
    """Return the value at the path `keys` in nested dicts; None if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
