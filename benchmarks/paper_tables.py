"""The tables of the sources as Markdown, beside what was measured here.

    jem-tf evaluate runs/digits
    python benchmarks/paper_tables.py runs/* runs/compare/* runs/detectors.json runs/likelihood.json

Reads run directories that were evaluated, directories of `compare.py`, and files of `detectors.py`
and `likelihood.py` (`measured.py`). Columns "here" are empty where nothing was run. Runs that
differ only in their seed are averaged. The figures of the sources are in `published.toml`.
"""

import argparse
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from measured import MEMBERS, Result, merge, read

PUBLISHED = Path(__file__).with_name("published.toml")
SCORES = {
    "log_density": "log p(x)",
    "max_probability": "max p(y given x)",
    "gradient_norm": "−‖∂ log p(x)/∂x‖",
}
ATTACKS = {
    "linf": "PGD",
    "apgd_linf": "APGD",
    "l2": "PGD",
    "apgd_l2": "APGD",
}  # others: as they are
LINF = ("linf", "apgd_linf")
SIZES = 8  # of a curve; the last one, which makes every image gray, is left out

Lines = list[list[str]]  # a table: its head, then its rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path, help="run directories and JSON files")
    print("\n\n".join(tables(parser.parse_args().paths)))


def tables(paths: Iterable[Path]) -> list[str]:
    """Return all tables, with what the directories and files `paths` hold."""
    results = merge([result for path in paths for result in read(path)])
    results.sort(key=lambda result: [*MEMBERS, result.member].index(result.member))
    published = tomllib.loads(PUBLISHED.read_text(encoding="utf-8"))
    runs = [result for result in results if result.get("detectors") is None]
    return [
        to_markdown(entry, MAKERS[name](entry, results if name == "detectors" else runs))
        for name, entry in published.items()
    ]


def generation(entry: Any, results: list[Result]) -> list[Lines]:
    def cells(result: Result, row: Any) -> list[str]:
        features = result.get("features") or {}
        score, fid = number(features.get("inception_score"), 2), number(features.get("fid"), 1)
        samples = (
            f"; {features['samples']:g} samples, in features of {features['space']}"
            if features
            else ""
        )
        return [percent(result.get("accuracy")), score, fid, f"{result}{samples}"]

    return [beside(entry, results, ["accuracy", "Inception score", "FID"], cells)]


def accuracy(entry: Any, results: list[Result]) -> list[Lines]:
    return [beside(entry, results, ["accuracy"], lambda r, _: [percent(r.get("accuracy")), str(r)])]


def calibration(entry: Any, results: list[Result]) -> list[Lines]:
    def cells(result: Result, row: Any) -> list[str]:
        keys = ("accuracy", "ece", "scaled ece")
        return [*(percent(result.get(key)) for key in keys), str(result)]

    columns = ["accuracy", "ECE", "ECE after temperature scaling"]
    return [beside(with_others(entry, results), results, columns, cells)]


def detection(entry: Any, results: list[Result]) -> list[Lines]:
    """AUROC by model and score, with a column here for every set that was measured."""
    sets = list({n: None for r in results for s in SCORES for n in r.get("auroc", s) or ()})

    def cells(result: Result, row: Any) -> list[str]:
        return [*(number(result.get("auroc", row["score"], n), 2) for n in sets), str(result)]

    return [beside(with_others(entry, results), results, sets, cells)]


def robustness(entry: Any, results: list[Result]) -> list[Lines]:
    """Two tables, of changes by the largest pixel and by Euclidean length."""
    curves = [
        (r, *key.split("|"), c) for r in results for key, c in (r.get("attacks") or {}).items()
    ]
    lines = []
    for unit, factor, inside in (("L∞, of 255", 255, True), ("L2, pixels from 0 to 1", 1, False)):
        chosen = [curve for curve in curves if (curve[2] in LINF) == inside]
        sizes = sorted({size for *_, curve in chosen for size in curve})[:SIZES]
        columns = [f"{factor * size:.3g}" for size in sizes]
        lines.append([["model", f"attack, {unit}", "inputs", *columns, "what ran here"]])
        for result, variant, kind, rows, curve in chosen:
            parts = result.name, variant.replace("JEM-", "k = ")
            name = ", ".join(filter(None, parts))
            accuracies = [percent(curve.get(size)) for size in sizes]
            lines[-1].append([name, ATTACKS.get(kind, kind), rows, *accuracies, str(result)])
    return lines


def detectors(entry: Any, results: list[Result]) -> list[Lines]:
    """The fused score of the verdict, the scores of the other tables, and those of the library."""
    found = [
        (result, score, aurocs)
        for result in results
        for score, aurocs in (result.get("detectors") or {}).items()
        if score in ("fused", *SCORES) or score.startswith("pytorch-ood")
    ]
    sets = list({name: None for *_, aurocs in found for name in aurocs})
    lines = [["model", "score", *sets, "what ran here"]]
    for r, score, aurocs in found:
        values = [number(aurocs.get(name), 2) for name in sets]
        label = SCORES.get(score, score)
        lines.append([r.name, label, *values, str(r)])
    return [lines]


def with_others(entry: Any, results: list[Result]) -> Any:
    """`entry` with rows for members that were run here, and that the source does not have."""
    scores = list({row.get("score"): None for row in entry["rows"]})
    listed = [(row["member"], row.get("score")) for row in entry["rows"]]
    members = {result.member: None for result in results}
    others = [
        {"model": MEMBERS.get(member, member), "member": member, "score": score, "values": []}
        for score in scores
        for member in members
        if (member, score) not in listed
    ]
    rows = sorted([*entry["rows"], *others], key=lambda row: scores.index(row.get("score")))
    return {**entry, "rows": rows}


def beside(
    entry: Any,
    results: list[Result],
    columns: list[str],
    cells: Callable[[Result, Any], list[str]],
) -> Lines:
    """The rows of `entry` and, in `columns` of their own, the `cells` of each result of a row."""
    scored = "score" in entry["rows"][0]
    head = ["score", "model"] if scored else ["model"]
    head += [*entry["columns"], *(f"here: {name}" for name in columns), "what ran here"]
    lines = [head]
    for row in entry["rows"]:
        values = row["values"] or [""] * len(entry["columns"])
        first = [SCORES[row["score"]]] if scored else []
        measured = [r for r in results if r.member == row["member"]]
        here = [cells(result, row) for result in measured] or [[""] * (len(columns) + 1)]
        lines += [[*first, row["model"], *values, *rest] for rest in here]
    return lines


def to_markdown(entry: Any, all_lines: list[Lines]) -> str:
    """A heading, the source, and the tables; a sentence instead of a table without rows."""
    text = [f"## {entry['title']}", "", f"Source: {entry['source']}."]
    text += ["", entry["note"]] if "note" in entry else []
    for head, *rows in all_lines:
        text += ["", *(_line(cells) for cells in (head, ["---"] * len(head), *rows) if rows)]
        text += [] if rows else ["Not run here."]
    return "\n".join(text)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def percent(value: float | None) -> str:
    """A share as a percentage; empty for None."""
    return "" if value is None else f"{100 * value:.1f}"


def number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


MAKERS = {
    "generation": generation,
    "ood": detection,
    "igebm": detection,
    "hdge": accuracy,
    "calibration": calibration,
    "robustness": robustness,
    "detectors": detectors,
}

if __name__ == "__main__":
    main()
