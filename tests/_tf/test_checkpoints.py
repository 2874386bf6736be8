"""Checkpoint directories: complete or absent, and corrupt ones are detected."""

import pytest

from jem_tf._tf import checkpoints


def write(directory, number):
    """Write a checkpoint whose model file and state hold `number`."""
    save = lambda path: path.write_bytes(bytes([number]) * 1000)  # noqa: E731
    return checkpoints.write(directory, save, {"step": number})


@pytest.fixture
def directory(tmp_path):
    """Two checkpoints, of steps 4 and 8."""
    write(tmp_path, 4)
    write(tmp_path, 8)
    return tmp_path


def test_the_newest_checkpoint_is_read(directory):
    checkpoint, state = checkpoints.newest(directory)
    assert checkpoint == directory / "000002" and state == {"step": 8}
    assert (checkpoint / checkpoints.MODEL).read_bytes() == bytes([8]) * 1000


@pytest.mark.parametrize("name", [checkpoints.MODEL, checkpoints.STATE])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing", "empty"])
def test_a_corrupt_checkpoint_is_detected_and_the_one_before_used(name, damage, directory):
    path = directory / "000002" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    damaged = {"truncated": content[: len(content) // 2], "flipped": content, "empty": b""}
    path.unlink()
    if damage in damaged:
        path.write_bytes(damaged[damage])
    with pytest.warns(UserWarning, match="000002.*is corrupt.*using the one before"):
        checkpoint, state = checkpoints.newest(directory)
    assert checkpoint.name == "000001" and state == {"step": 4}


def test_there_is_no_checkpoint_if_all_are_corrupt(directory):
    for number in ("000001", "000002"):
        (directory / number / checkpoints.STATE).write_text("garbage")
    with pytest.warns(UserWarning, match="corrupt"):
        assert checkpoints.newest(directory) is None
    assert checkpoints.newest(directory / "missing") is None


def test_a_partial_checkpoint_is_ignored(directory):
    (directory / "000002").rename(directory / ".000003.part")
    assert checkpoints.newest(directory)[1] == {"step": 4}
    assert write(directory, 9).name == "000002"


def test_only_the_newest_are_kept(directory):
    for step in range(5):
        write(directory, step)
    assert sorted(path.name for path in directory.iterdir()) == ["000006", "000007"]


def test_a_failed_write_changes_nothing(directory):
    def fail(path):
        path.write_bytes(b"half")
        raise OSError("disk full")

    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    with pytest.raises(OSError, match="disk full"):
        checkpoints.write(directory, fail, {})
    after = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    assert after == before
