"""`jem-tf sample`: a picture of samples."""

from PIL import Image

from jem_tf_cli import main


def test_sample_draws_a_picture(trained, tmp_path, capsys):
    out = tmp_path / "samples.png"
    flags = ["--label", "1", "--count", "12", "--steps", "2", "--out", str(out)]
    assert main(["sample", str(trained), *flags]) == 0
    with Image.open(out) as picture:
        assert picture.size == (10 * 48 + 18, 2 * 48 + 2)
    assert f"Wrote {out}" in capsys.readouterr().out
