"""Scores of many rows: any model, any source, a table with a row for each input."""

from jem_tf.scoring.scoring import Summary, score

__all__ = ["Summary", "score"]
