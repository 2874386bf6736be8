"""`jem-tf sample`: a picture of samples. `jem-tf evaluate`: sizes of attacks."""

import argparse

import pytest
from PIL import Image

from jem_tf_cli import main
from jem_tf_cli.types import attack


def test_sample_draws_a_picture(trained, tmp_path, capsys):
    out = tmp_path / "samples.png"
    flags = ["--label", "1", "--count", "12", "--steps", "2", "--out", str(out)]
    assert main(["sample", str(trained), *flags]) == 0
    with Image.open(out) as picture:
        assert picture.size == (10 * 48 + 18, 2 * 48 + 2)
    assert f"Wrote {out}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("linf", ("linf", ())),
        ("linf=4/255,0.1", ("linf", (4 / 255, 0.1))),
        ("l2=0.25", ("l2", (0.25,))),
    ],
)
def test_sizes_of_attacks_are_numbers_or_fractions(text, expected):
    assert attack(text) == expected


@pytest.mark.parametrize(
    "text", ["l2=-1", "l2=big", "l2=1/0", "l2=0.1,", "l2=", "linf=4", "none=1"]
)
def test_other_sizes_of_attacks_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match=f"Received: '{text}'"):
        attack(text)
