"""A small budget, and one evaluated report that several tests read."""

import pytest

from jem_tf.evaluation import BUDGETS, Budget
from jem_tf_cli import main


@pytest.fixture(scope="session", autouse=True)
def tiny_budget():
    """The budget "tiny": every part of an evaluation, with as little work as possible."""
    BUDGETS["tiny"] = Budget(
        attack_rows=6,
        attack_steps=2,
        refine_rows=4,
        square_steps=2,
        boundary_rows=3,
        boundary_steps=10,
        pointwise_rows=2,
        distal_steps=2,
        samples_per_class=5,
        sample_steps=4,
        animation_frames=2,
        classifier_rows=1,
    )
    yield
    del BUDGETS["tiny"]


@pytest.fixture(scope="session")
def baseline(small, shared_directory):
    """A finished run of a plain classifier on the images of `trained`."""

    def write(directory):
        flags = ["--objective", "cross_entropy", "--epochs", "2", "--out", str(directory / "run")]
        assert main(["train", small, *flags]) == 0

    return shared_directory("plain", write) / "run"


@pytest.fixture(scope="session")
def report_directory(trained, baseline, tiny_budget, shared_directory):
    """The report on the run `trained` beside its baseline; tests must not change it.

    The digits have another shape than the images of the run, and are resized.
    """

    def write(directory):
        flags = ["--baseline", str(baseline), "--ood", "noise", "constant", "digits", "--resize"]
        flags += ["--judge", str(baseline), "--budget", "tiny", "--out", str(directory / "here")]
        assert main(["evaluate", str(trained), *flags]) == 0

    return shared_directory("report", write) / "here"
