"""What `make demo` promises, for five seeds."""

import pytest

from jem_tf.cli import demo
from jem_tf.data.ood_sets import SYNTHETIC
from jem_tf.evaluation import report


def auroc(results, score):
    """AUROC of a score against each out-of-distribution set."""
    return {name: row["auroc"] for name, row in results["ood"][score].items()}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_the_demo_keeps_its_promises(seed, tmp_path):
    results = demo.run(tmp_path / "demo", seed, verbose=False)
    jem, plain = (results["models"][name] for name in ("JEM", "cross-entropy"))
    assert jem["classification"]["accuracy"] >= 0.98
    verdict = auroc(jem, "fused")
    assert set(verdict) == set(SYNTHETIC)
    assert min(verdict.values()) >= 0.95
    jem_auroc, plain_auroc = auroc(jem, "gradient_norm"), auroc(plain, "gradient_norm")
    # A single score, which the verdict does not rest on: constants have .896 for seed 3.
    assert min(jem_auroc.values()) >= 0.88
    assert min(plain_auroc.values()) < 0.6  # near or below chance for some set
    assert all(jem_auroc[name] > plain_auroc[name] for name in SYNTHETIC)
    assert report.accuracy_at(jem, "linf", 26 / 255) > report.accuracy_at(plain, "linf", 26 / 255)
    samples = jem["generation"]
    assert samples["steps"] <= 400
    assert samples["quality"]["recognised"] >= 0.95
    assert samples["buffer"]["quality"]["recognised"] >= 0.95
    assert 0.5 < samples["quality"]["diversity"] < 1.5
    assert samples["neighbours"]["copies"] < 0.1
    assert sum(results["seconds"].values()) < 120  # "quick"
    assert (tmp_path / "demo" / "joint" / "samples.png").is_file()
    assert (tmp_path / "demo" / "report" / "report.html").is_file()
