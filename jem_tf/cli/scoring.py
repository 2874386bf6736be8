"""The command that scores data in bulk: `score`."""

from argparse import Namespace

import jem_tf

COLUMNS = ("label", "columns", "split", "data_dir", "pixel_range")
EXECUTION = ("batch_size", "part_rows", "engine", "workers", "address", "overwrite", "report")


def score(arguments: Namespace) -> None:
    options = {name: getattr(arguments, name) for name in (*COLUMNS, *EXECUTION)}
    data = arguments.data if len(arguments.data) > 1 else arguments.data[0]
    summary = jem_tf.score(arguments.model, data, arguments.out, row_id=arguments.id, **options)
    rate = summary.scored / max(summary.seconds, 1e-9)
    flagged = summary.out_of_distribution
    verdict = "no verdict" if flagged is None else f"{flagged} out of distribution"
    print(
        f"Scored {summary.scored} of {summary.rows} rows in {summary.seconds:.1f} s, {rate:.0f} "
        f"rows/s: {verdict}, {summary.errors} with an error\nWrote {summary.out}"
    )
    if summary.report is not None:
        print(f"Wrote {summary.report}")
