"""The part on the training: the columns of its `log.csv` as curves."""

import csv
from pathlib import Path

from jem_tf.evaluation.parts.job import Job, Results


def measure(job: Job) -> Results:
    """Read the numeric columns of the log; incomplete rows of an interrupted run are skipped."""
    if job.log is None or not Path(job.log).is_file():
        return
    with Path(job.log).open() as file:
        rows = [row for row in csv.DictReader(file) if None not in row.values()]
    curves = {}
    for column in rows[0] if rows else ():
        try:
            curves[column] = [float(row[column]) for row in rows]
        except ValueError:
            continue  # not a column of numbers
    yield job.subjects[0].name, {"training": curves}
