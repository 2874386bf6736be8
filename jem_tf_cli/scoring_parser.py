"""The flags of `jem-tf score`."""

from pathlib import Path

from jem_tf_cli.arguments import Commands, add_data_dir, add_pixel_range
from jem_tf_cli.types import positive_integer


def add_score(commands: Commands) -> None:
    parser = commands.add(
        "score", "Score every row of a data set into a table, with verdicts.", "scoring:score"
    )
    parser.add_argument(
        "model",
        help="run directory, .keras file, export, or grpc://host:port/model of an endpoint",
    )
    parser.add_argument(
        "data",
        nargs="+",
        help="a folder of images in any depth, image files, a .txt file with their paths, .npz, "
        ".csv, .parquet, .tfrecord, or the name of a data set",
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="the scores: .parquet, .csv or .jsonl"
    )
    parser.add_argument(
        "--report", action="store_true", help="write a page about the scores beside them"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the scores in --out")
    parser.add_argument("--split", default="test", help="of a data set (default: test)")
    parser.add_argument("--label", metavar="COLUMN", help="labels of a table")
    parser.add_argument("--id", metavar="COLUMN", help="what identifies a row of a table")
    parser.add_argument(
        "--columns", nargs="+", metavar="COLUMN", help="inputs of a table (default: all others)"
    )
    parser.add_argument(
        "--batch-size", type=positive_integer, default=256, help="rows in a call (default: 256)"
    )
    parser.add_argument(
        "--part-rows",
        type=positive_integer,
        default=10_240,
        help="rows that are written at a time, and a task of a worker (default: 10240)",
    )
    parser.add_argument(
        "--engine",
        default="local",
        help="local (default), or ray: several processes or machines (pip install jem_tf[ray])",
    )
    parser.add_argument("--workers", type=positive_integer, default=2, help="of Ray (default: 2)")
    parser.add_argument(
        "--address", help="of a Ray cluster, such as auto (default: start Ray on this machine)"
    )
    add_pixel_range(parser)
    add_data_dir(parser)
