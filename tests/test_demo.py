"""What `make demo` promises, for five seeds."""

import pytest

from jem_tf import demo
from jem_tf.data import SYNTHETIC


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_the_demo_keeps_its_promises(seed, tmp_path):
    results = demo.run(tmp_path / "demo", seed, verbose=0)
    jem, plain, samples = (results[name] for name in ("JEM", "cross-entropy", "samples"))
    assert jem["accuracy"] >= 0.98
    by_norm = jem["auroc"]["gradient_norm"]
    assert set(by_norm) == set(SYNTHETIC)
    assert min(by_norm.values()) >= 0.90
    assert min(plain["auroc"]["gradient_norm"].values()) < 0.6  # near or below chance somewhere
    assert samples["conditional"]["steps"] <= 400
    assert samples["conditional"]["recognised"] >= 0.95
    assert samples["buffer"]["recognised"] >= 0.95
    assert 0.5 < samples["conditional"]["diversity"] < 1.5
    assert (tmp_path / "demo" / "joint" / "samples.png").is_file()
