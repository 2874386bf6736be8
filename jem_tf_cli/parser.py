"""The flags of `jem-tf` and their help.

Not here: what a command does (`jem_tf/cli/`). Each command names its function as "module:function"
of that package.
"""

import argparse
from importlib import metadata
from pathlib import Path

from jem_tf_cli.arguments import (
    Commands,
    add_data_dir,
    add_pixel_range,
    add_test_data,
    with_examples,
)
from jem_tf_cli.scoring_parser import add_score
from jem_tf_cli.serving_parser import add_clients, add_export, add_serve
from jem_tf_cli.types import attack, positive_integer, positive_number

# Named in help texts. The sources are `jem_tf.objectives` and `jem_tf.training.recipes`, which
# need TensorFlow; tests/cli compares.
OBJECTIVES = (
    "joint (default), factored, igebm, hdge, supcon, nce, fce, dual_adversarial, score_matching, "
    "energy_discrepancy, cross_entropy"
)
RECIPES = (
    "digits, fashion_mnist, cifar10-classifier, cifar10-small, image, tabular, fashion_mnist_fast, "
    "image_fast; the paper's cifar10, cifar100, svhn"
)


def make_parser(argv: list[str]) -> argparse.ArgumentParser:
    """Return the parser of all commands; the flags of `serve` only if `argv` names it."""
    parser = argparse.ArgumentParser(
        prog="jem-tf",
        description="Train, measure and serve Keras classifiers that know what they do not know.",
        **with_examples(""),
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = Commands(parser)
    _add_train(commands)
    _add_import(commands)
    _add_evaluate(commands)
    add_score(commands)
    _add_small_commands(commands)
    add_export(commands)
    add_serve(commands, with_flags=argv[:1] == ["serve"])
    add_clients(commands)
    return parser


def _add_train(commands: Commands) -> None:
    parser = commands.add(
        "train", "Train a JEM on a data set, into a run directory.", "training:train"
    )
    parser.add_argument(
        "dataset",
        nargs="?",
        help="digits, the name of a TensorFlow Datasets set, an .npz, .csv or .parquet file, "
        "or a folder of images by class",
    )
    parser.add_argument("--out", type=Path, help="run directory (default: runs/DATASET)")
    parser.add_argument(
        "--resume",
        nargs="?",
        type=Path,
        const=True,
        default=False,
        metavar="RUN",
        help="resume RUN with its own settings; without RUN: resume the run in --out if there is "
        "one, so that the same command starts and resumes",
    )
    parser.add_argument("--force", action="store_true", help="resume although settings differ")
    parser.add_argument(
        "--save-seconds",
        type=positive_number,
        default=60.0,
        help="between two checkpoints (default: 60)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the run in --out")
    parser.add_argument("--recipe", help=f"named settings: {RECIPES}; or a .toml file of settings")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a field of the recipe, such as temperature=0.01, backbone_options.width=64 or "
        "objective_options.weight=0.5; may be repeated",
    )
    parser.add_argument(
        "--from",
        dest="start",
        type=Path,
        metavar="MODEL",
        help="begin with a trained classifier: .keras or .h5 file, run directory, or SavedModel of "
        "Keras 2; a softmax at its end is taken off",
    )
    parser.add_argument(
        "--objective",
        help=f"what is learned: {OBJECTIVES}; or a likelihood model: glow, pixelcnn",
    )
    parser.add_argument("--epochs", type=positive_integer, help="passes over the data")
    parser.add_argument("--batch-size", type=positive_integer, help="rows, and chains, in a step")
    parser.add_argument("--learning-rate", type=positive_number, help="of Adam")
    parser.add_argument("--steps", type=positive_integer, help="sampler steps in a training step")
    parser.add_argument("--seed", type=int, help="makes the run repeatable (default: 0)")
    parser.add_argument(
        "--image-size", type=positive_integer, help="resize images to this many pixels"
    )
    parser.add_argument("--label", metavar="COLUMN", help="labels of a table (default: label)")
    parser.add_argument(
        "--columns", nargs="+", metavar="COLUMN", help="inputs of a table (default: all others)"
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="refuse corrupt images and rows with missing values (default: name and skip them)",
    )
    parser.add_argument(
        "--tensorboard", action="store_true", help="write TensorBoard logs to RUN/tensorboard"
    )
    parser.add_argument(
        "--strategy",
        default="auto",
        help="auto (default: workers of TF_CONFIG, else all GPUs), mirrored, multi-worker, none",
    )
    parser.add_argument(
        "--restarts",
        type=int,
        help="how often to restart from the last checkpoint if the process dies (default: 10 with "
        "more than one worker, else 0)",
    )
    parser.add_argument(
        "--wait",
        type=positive_number,
        default=300.0,
        help="seconds to wait for other workers (default: 300)",
    )
    add_pixel_range(parser)
    add_data_dir(parser)


def _add_import(commands: Commands) -> None:
    parser = commands.add(
        "import",
        "Convert a checkpoint of the JEM authors' PyTorch code to a run directory.",
        "training:import_checkpoint",
    )
    parser.add_argument(
        "checkpoint", type=Path, help="file with model_state_dict and replay_buffer"
    )
    parser.add_argument("--arch", default="wrn-28-10", help="wrn-DEPTH-WIDTH (default: wrn-28-10)")
    parser.add_argument(
        "--norm",
        help="batch, instance, layer or act (default: as in the checkpoint; required for "
        "instance and layer, which have the same weights)",
    )
    parser.add_argument(
        "--dataset", default="cifar10", help="what it was trained on (default: cifar10)"
    )
    parser.add_argument("--out", type=Path, help="run directory (default: runs/FILE)")
    parser.add_argument("--overwrite", action="store_true", help="replace the run in --out")
    add_data_dir(parser)


def _add_evaluate(commands: Commands) -> None:
    parser = commands.add("evaluate", "Measure a model and write a report.", "evaluation:evaluate")
    parser.add_argument(
        "model",
        help="run directory, .keras file, SavedModel, or grpc://host:port/model of a TF Serving "
        "endpoint",
    )
    parser.add_argument("--baseline", help="another such model to compare with")
    parser.add_argument(
        "--ood",
        nargs="+",
        metavar="NAME",
        help="out-of-distribution sets: patches, noise, constant, interpolations (default: those "
        "that suit the data), or any data set",
    )
    parser.add_argument(
        "--attacks",
        nargs="+",
        type=attack,
        metavar="NAME[=SIZES]",
        help="linf, l2, apgd_linf, apgd_l2, boundary, pointwise (default: all of them), or none; "
        "with sizes, linf=4/255,8/255, where pixels go from 0 to 1",
    )
    parser.add_argument(
        "--judge",
        metavar="MODEL",
        help="a classifier that recognises samples, trained apart from MODEL (default: a support "
        "vector machine on pixels, which is too weak for photographs)",
    )
    parser.add_argument(
        "--budget",
        default="quick",
        help="quick (default: minutes), full (more rows, stronger attacks), published (full, with "
        "10 000 samples)",
    )
    parser.add_argument("--out", type=Path, help="directory of the report (default: MODEL/report)")
    add_test_data(parser)
    parser.add_argument("--resize", action="store_true", help="resize images to the model's shape")
    parser.add_argument(
        "--inception", type=Path, metavar="FILE", help="Inception network for FID (.pb or .h5)"
    )
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")


def _add_small_commands(commands: Commands) -> None:
    parser = commands.add(
        "loglik", "Estimate log Z, and with it log p(x) of test data.", "evaluation:loglik"
    )
    parser.add_argument("model", type=Path, help="run directory or .keras file")
    add_test_data(parser)
    parser.add_argument("--chains", type=positive_integer, default=100, help="(default: 100)")
    parser.add_argument(
        "--steps", type=positive_integer, default=1000, help="of annealing (default: 1000)"
    )
    parser.add_argument(
        "--rows", type=positive_integer, default=1000, help="test inputs (default: 1000)"
    )
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")

    parser = commands.add(
        "sample", "Draw samples of a trained model into a picture.", "evaluation:sample"
    )
    parser.add_argument("model", type=Path, help="run directory or .keras file")
    parser.add_argument("--label", type=int, help="class (default: samples of p(x))")
    parser.add_argument("--count", type=positive_integer, default=100, help="(default: 100)")
    parser.add_argument(
        "--steps", type=positive_integer, default=400, help="of the chains (default: 400)"
    )
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    parser.add_argument(
        "--out", type=Path, default=Path("samples.png"), help="(default: samples.png)"
    )

    commands.add(
        "recipes", "List recipes, their cost and what they reached.", "training:list_recipes"
    )

    parser = commands.add(
        "demo", "Train a JEM and a plain classifier on digits and compare them.", "demo:demo"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="(default: runs/demo)")
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")


def _version() -> str:
    try:
        return metadata.version("jem_tf")
    except metadata.PackageNotFoundError:  # a source tree that is not installed
        return "unknown"
