"""The command line: flags, their help, exit codes.

Not here: what a command does (`commands.py`).
"""

import argparse
import dataclasses
import os
import sys
import textwrap
from pathlib import Path
from typing import Any

from jem_tf.cli import commands
from jem_tf.server import flags

OBJECTIVES = (  # those of `jem_tf.objectives`, without TensorFlow
    "joint",
    "factored",
    "igebm",
    "hdge",
    "nce",
    "fce",
    "dual_adversarial",
    "cross_entropy",
)

EXAMPLES = {
    "": """\
        jem-tf demo                                  the whole story in minutes
        jem-tf train digits --out runs/digits        train on the embedded digits
        jem-tf evaluate runs/digits                  accuracy, calibration, OOD detection
        jem-tf sample runs/digits --label 3          look at what it has learned""",
    "train": """\
        jem-tf train digits
        jem-tf train fashion_mnist --data-dir ~/tfds --out runs/fashion
        jem-tf train photos/ --image-size 32         a folder of images for each class
        jem-tf train table.npz                       x, y or x_train, y_train, x_test, y_test
        jem-tf train digits --objective cross_entropy --out runs/baseline
        jem-tf train --resume runs/digits            after Ctrl-C, a crash or a power cut""",
    "evaluate": """\
        jem-tf evaluate runs/digits                  runs/digits/report/report.html
        jem-tf evaluate runs/digits --baseline runs/baseline --ood noise patches
        jem-tf evaluate runs/fashion --ood mnist --budget full --data-dir ~/tfds
        jem-tf evaluate saved_models/digits --dataset digits --attacks linf
        jem-tf evaluate grpc://localhost:8500/digits --dataset digits""",
    "sample": """\
        jem-tf sample runs/digits --out samples.png
        jem-tf sample runs/digits --label 3 --count 100 --steps 200 --seed 1""",
    "loglik": """\
        jem-tf loglik runs/digits
        jem-tf loglik runs/digits --steps 10000      slower and closer""",
    "import": """\
        jem-tf import CIFAR10_MODEL.pt --arch wrn-28-10 --out runs/published
        jem-tf import jempp.pt --arch wrn-28-10 --dataset cifar100
        jem-tf evaluate runs/published --data-dir ~/tfds""",
    "export": """\
        jem-tf export runs/digits                    saved_models/digits/1, 2, 3, ...
        jem-tf export runs/cifar10 --pytorch jem.pt  for the JEM authors' code
        jem-tf export runs/digits --out /models/digits --refine-steps 5""",
    "inspect": "        jem-tf inspect saved_models/digits",
    "serve": """\
        jem-tf serve saved_models/digits             gRPC at 8500, REST and a page at 8501
        jem-tf serve saved_models/digits --enable-batching --port 9000
        jem-tf serve --model_config_file=models.config --rest_api_port=8501""",
    "gateway": """\
        jem-tf gateway --upstream serving:8500 --upstream-rest serving:8501
        curl localhost:8501/monitoring/prometheus/metrics      jem_tf:ood_rate""",
    "load": """\
        jem-tf load --model digits                   gRPC at localhost:8500
        jem-tf load --model digits --address http://localhost:8501 --clients 1 8 32""",
    "predict": """\
        jem-tf predict seven.png --model digits
        jem-tf predict *.jpg --model digits --address http://localhost:8501 --json""",
    "demo": "        jem-tf demo --out runs/demo",
}


def main(argv: list[str] | None = None) -> int:
    """Run the command in `argv`; the exit code."""
    argv = [_dashed(word) for word in (sys.argv[1:] if argv is None else argv)]
    arguments = make_parser().parse_args(argv)
    arguments.argv = argv
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        arguments.run(arguments)
    except KeyboardInterrupt as stop:
        print(f"\n{str(stop) or 'Interrupted.'}", file=sys.stderr)
        return getattr(stop, "exit_code", 130)
    except (ValueError, OSError) as error:
        print(f"jem-tf: {error}", file=sys.stderr)
        return 2
    return 0


def make_parser() -> argparse.ArgumentParser:
    from jem_tf.version import VERSION

    parser = argparse.ArgumentParser(
        prog="jem-tf",
        description="Train, measure and sample Keras classifiers that know what they do not know.",
        **_teaching(""),
    )
    parser.add_argument("--version", action="version", version=VERSION)
    subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, about: str, run: Any) -> argparse.ArgumentParser:
        sub = subparsers.add_parser(name, help=about, description=about, **_teaching(name))
        sub.set_defaults(run=run)
        return sub

    sub = command("train", "Train a JEM on a data set, into a run directory.", commands.train)
    sub.add_argument(
        "dataset",
        nargs="?",
        help="digits, the name of a TensorFlow Datasets set, an .npz file, or a folder of "
        "images by class",
    )
    sub.add_argument("--out", type=Path, help="run directory (default: runs/DATASET)")
    sub.add_argument(
        "--resume",
        nargs="?",
        type=Path,
        const=True,
        default=False,
        metavar="RUN",
        help="go on with RUN, which knows its settings; without RUN: with the one in --out, if "
        "there is one, so that the same command begins and goes on",
    )
    sub.add_argument("--force", action="store_true", help="go on although settings differ")
    sub.add_argument(
        "--save-seconds", type=_rate, default=60.0, help="between two checkpoints (default: 60)"
    )
    sub.add_argument("--overwrite", action="store_true", help="replace the run in --out")
    known = "digits, fashion_mnist, cifar10-small, image, tabular, fashion_mnist_fast, image_fast"
    paper = "the paper's cifar10, cifar100, svhn"
    sub.add_argument("--recipe", help=f"named settings: {known}; {paper}")
    sub.add_argument("--objective", help=f"what is learned: {', '.join(OBJECTIVES)}")
    sub.add_argument("--epochs", type=_positive, help="passes over the data")
    sub.add_argument("--batch-size", type=_positive, help="rows, and chains, in a step")
    sub.add_argument("--learning-rate", type=_rate, help="Adam's")
    sub.add_argument("--steps", type=_positive, help="sampler steps in a training step")
    sub.add_argument("--seed", type=int, help="makes the run repeatable (default: 0)")
    sub.add_argument("--image-size", type=_positive, help="resize images to this many pixels")
    sub.add_argument(
        "--strategy",
        default="auto",
        help="auto (default: workers of TF_CONFIG, else all GPUs), mirrored, multi-worker, none",
    )
    sub.add_argument(
        "--restarts",
        type=int,
        help="how often to start again from the last checkpoint when the training dies (default: "
        "10 with more than one worker, else 0)",
    )
    sub.add_argument(
        "--wait", type=_rate, default=300.0, help="seconds for other workers to come (default: 300)"
    )
    _data_dir(sub)

    sub = command(
        "import",
        "Bring a checkpoint of the JEM authors' PyTorch code here, as a run directory.",
        commands.import_checkpoint,
    )
    sub.add_argument("checkpoint", type=Path, help="file with model_state_dict and replay_buffer")
    sub.add_argument("--arch", default="wrn-28-10", help="wrn-DEPTH-WIDTH (default: wrn-28-10)")
    sub.add_argument(
        "--norm",
        help="batch, instance, layer or act (default: found in the checkpoint, but for "
        "instance and layer, which look alike)",
    )
    sub.add_argument(
        "--dataset", default="cifar10", help="what it was trained on (default: cifar10)"
    )
    sub.add_argument("--out", type=Path, help="run directory (default: runs/ and the file's name)")
    sub.add_argument("--overwrite", action="store_true", help="replace the run in --out")
    _data_dir(sub)

    sub = command("evaluate", "Measure a model and write a report of it.", commands.evaluate)
    sub.add_argument(
        "model",
        help="run directory, .keras file, SavedModel, or grpc://host:port/model of a TF Serving "
        "endpoint",
    )
    sub.add_argument("--baseline", help="another such model to put beside it")
    sub.add_argument(
        "--ood",
        nargs="+",
        metavar="NAME",
        help="sets that do not belong: patches, noise, constant, interpolations (default: those "
        "that suit the data), or any data set",
    )
    sub.add_argument(
        "--attacks",
        nargs="+",
        metavar="NAME",
        help="linf, l2, boundary, pointwise (default: these), or none",
    )
    sub.add_argument(
        "--budget", default="quick", help="quick (default: minutes) or full (more rows, stronger)"
    )
    sub.add_argument("--out", type=Path, help="directory of the report (default: MODEL/report)")
    sub.add_argument("--dataset", help="what to test on (default: what the model was trained on)")
    sub.add_argument("--resize", action="store_true", help="bring images to the model's shape")
    sub.add_argument(
        "--inception", type=Path, metavar="FILE", help="Inception network for FID (.pb or .h5)"
    )
    sub.add_argument("--seed", type=int, default=0, help="(default: 0)")
    _data_dir(sub)

    sub = command("loglik", "Estimate log Z, and with it log p(x) of test data.", commands.loglik)
    sub.add_argument("model", type=Path, help="run directory or .keras file")
    sub.add_argument("--dataset", help="what to test on (default: what the model was trained on)")
    sub.add_argument("--chains", type=_positive, default=100, help="(default: 100)")
    sub.add_argument("--steps", type=_positive, default=1000, help="of annealing (default: 1000)")
    sub.add_argument("--rows", type=_positive, default=1000, help="test inputs (default: 1000)")
    sub.add_argument("--seed", type=int, default=0, help="(default: 0)")
    _data_dir(sub)

    sub = command("export", "Write a run as the next version of a SavedModel.", commands.export)
    sub.add_argument("model", type=Path, help="run directory")
    sub.add_argument("--out", type=Path, help="model directory (default: saved_models/DATASET)")
    sub.add_argument(
        "--pytorch", type=Path, metavar="FILE", help="write a checkpoint for PyTorch instead"
    )
    sub.add_argument("--refine-steps", type=_positive, default=10, help="(default: 10)")
    sub.add_argument("--sample-steps", type=_positive, default=400, help="(default: 400)")
    sub.add_argument(
        "--no-examples",
        dest="examples",
        action="store_false",
        help="no validation rows in the export, which the inspector shows to all who reach it",
    )
    _data_dir(sub)

    sub = command(
        "inspect", "Print signatures, thresholds and metrics of an export.", commands.inspect
    )
    sub.add_argument("directory", type=Path, help="model directory, or one version of it")

    sub = command("sample", "Draw samples of a trained model into a picture.", commands.sample)
    sub.add_argument("model", type=Path, help="run directory or .keras file")
    sub.add_argument("--label", type=int, help="class (default: samples of p(x))")
    sub.add_argument("--count", type=_positive, default=100, help="how many (default: 100)")
    sub.add_argument("--steps", type=_positive, default=400, help="of the chains (default: 400)")
    sub.add_argument("--seed", type=int, default=0, help="(default: 0)")
    sub.add_argument("--out", type=Path, default=Path("samples.png"), help="(default: samples.png)")

    sub = command("serve", "Serve SavedModels by TF Serving's protocol.", commands.serve)
    sub.add_argument(
        "directory", nargs="?", type=Path, help="model directory, for --model-base-path and -name"
    )
    for flag in dataclasses.fields(flags.Options):
        _add_flag(sub, flag)
    sub.add_argument("--no-inspector", dest="inspector", action="store_false", help="no page at /")
    for name in flags.IGNORED:
        dashed = f"--{name.replace('_', '-')}"
        sub.add_argument(dashed, nargs="?", const="", help=argparse.SUPPRESS)

    sub = command(
        "gateway",
        "Stand before a TF Serving, pass everything on, and count what is out of distribution.",
        commands.gateway,
    )
    sub.add_argument("--upstream", default="localhost:8500", help="its gRPC, host:port")
    sub.add_argument("--upstream-rest", default="localhost:8501", help="its REST API, host:port")
    sub.add_argument("--host", default="127.0.0.1", help="to listen at (default: 127.0.0.1)")
    sub.add_argument("--port", type=_positive, default=8510, help="of gRPC (default: 8510)")
    sub.add_argument(
        "--rest-api-port", type=_positive, default=8511, help="of REST and metrics (default: 8511)"
    )

    sub = command("load", "Ask a served model as fast as it answers.", commands.load)
    _endpoint(sub)
    sub.add_argument("--signature", default="serving_default", help="(default: serving_default)")
    sub.add_argument(
        "--clients", nargs="+", type=_positive, default=[32], help="at a time (default: 32)"
    )
    sub.add_argument("--seconds", type=_rate, default=10.0, help="(default: 10)")
    sub.add_argument("--rows", type=_positive, default=1, help="in a request (default: 1)")

    sub = command("predict", "Ask a served model about image files.", commands.predict)
    sub.add_argument("images", nargs="+", type=Path, help="PNG or JPEG files")
    _endpoint(sub)
    sub.add_argument("--version", type=int, help="(default: the newest)")
    sub.add_argument("--label", help="of a version")
    sub.add_argument("--timeout", type=_rate, default=60.0, help="seconds (default: 60)")
    sub.add_argument("--ca", type=Path, help="PEM file: who signed the server's certificate")
    sub.add_argument("--certificate", type=Path, help="PEM file: this client's")
    sub.add_argument("--key", type=Path, help="PEM file: and its key")
    sub.add_argument("--json", action="store_true", help="a line of JSON for each image")

    sub = command(
        "demo", "Train a JEM and a plain classifier on digits and compare them.", commands.demo
    )
    sub.add_argument("--out", type=Path, default=Path("runs/demo"), help="(default: runs/demo)")
    sub.add_argument("--seed", type=int, default=0, help="(default: 0)")
    return parser


def _endpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="its name on the server")
    parser.add_argument(
        "--address",
        default="localhost:8500",
        help="host:port of gRPC (default: localhost:8500), or grpcs://, http://, https://",
    )


def _data_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-dir", help="where TensorFlow Datasets keeps its sets (default: TFDS_DATA_DIR)"
    )


def _teaching(command: str) -> dict[str, Any]:
    return {
        "epilog": "examples:\n" + textwrap.indent(textwrap.dedent(EXAMPLES[command]), "  "),
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }


def _dashed(word: str) -> str:
    """TF Serving's flags have underscores."""
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value if word.startswith("--") else word


def _add_flag(parser: argparse.ArgumentParser, flag: Any) -> None:
    """A flag of the server, from the field of its settings."""
    kind = type(flag.default)
    shown = f" (default: {flag.default})" if flag.default != "" else ""
    about = flag.metadata["help"] + ("" if "(default" in flag.metadata["help"] else shown)
    options: dict[str, Any] = {"type": kind}
    if kind is bool:
        options = {"type": _boolean, "nargs": "?", "const": True, "metavar": "BOOL"}
    name = f"--{flag.name.replace('_', '-')}"
    parser.add_argument(name, default=flag.default, help=about, **options)


def _boolean(text: str) -> bool:
    known = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in known:
        raise argparse.ArgumentTypeError(f"must be true or false. Received: {text!r}")
    return known[text.lower()]


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number. Received: {text!r}")
    return value


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer. Received: {text!r}")
    return int(text)
