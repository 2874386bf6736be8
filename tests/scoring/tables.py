"""Reading scores."""

import numpy as np
import pyarrow.parquet as pq


def read(path):
    return pq.read_table(path).to_pylist()


def values(rows, name):
    return np.array([row[name] for row in rows], float)
