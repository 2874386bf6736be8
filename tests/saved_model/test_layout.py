"""Model directories: which version is next, which is newest, and metadata that may be missing."""

import pytest

from jem_tf.saved_model import layout


@pytest.fixture
def directory(tmp_path):
    """Versions 3 and 12 are complete, version 20 is not, and other names are no versions."""
    for name in ("3", "12", "20", "notes", ".writing-21-1", "٣", "9" * 30):
        (tmp_path / name).mkdir()
    for name in ("3", "12"):
        (tmp_path / name / layout.SAVED_MODEL).touch()
    (tmp_path / "25").touch()  # a file
    return tmp_path


def test_versions_are_directories_with_numbers(directory):
    assert layout.versions(directory) == {n: directory / str(n) for n in (3, 12, 20)}
    assert layout.next_version(directory) == directory / "21"


def test_the_newest_version_is_the_largest_complete_one(directory, tmp_path):
    assert layout.newest(directory) == directory / "12"
    assert layout.newest(directory / "3") == directory / "3"
    for path in (directory / "20", tmp_path / "missing"):
        with pytest.raises(ValueError, match="no SavedModel"):
            layout.newest(path)


def test_the_first_version_is_1(tmp_path):
    assert layout.next_version(tmp_path) == tmp_path / "1"


@pytest.mark.parametrize("content", [None, "not JSON", "[1, 2]"])
def test_missing_or_other_metadata_is_empty(content, directory):
    if content is not None:
        (directory / "3" / layout.ASSETS).mkdir()
        (directory / "3" / layout.METADATA).write_text(content)
    assert layout.read_metadata(directory / "3") == {}
