"""Files that are replaced as a whole: who may read them while they are written and afterwards."""

import os
import stat

import pytest

from dpcvx.whole_files import replace_file

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes of files are those of POSIX")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o022, 0o027, 0o077])
def mask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def written(path):
    """Replace a file; return the mode of the unfinished one once there is something in it."""
    seen = []

    def write(part):
        part.write_text("new")
        seen.append(mode(part))

    replace_file(path, write)
    assert path.read_text() == "new"
    return seen[0]


def test_an_unfinished_file_is_private_and_a_finished_one_has_the_mode_of_any_new_file(tmp_path, mask):
    path = tmp_path / "model.json"
    assert written(path) == 0o600
    assert mode(path) == 0o666 & ~mask
    other = tmp_path / "other"
    other.touch()
    assert mode(other) == mode(path)  # the mask of the process is as it was


@pytest.mark.parametrize("own", [0o600, 0o640, 0o664])
def test_a_file_keeps_its_mode(tmp_path, own):
    path = tmp_path / "model.json"
    path.touch()
    path.chmod(own)
    assert written(path) == 0o600
    assert mode(path) == own


def test_what_a_killed_process_left_is_neither_used_nor_followed(tmp_path):
    path, elsewhere = tmp_path / "model.json", tmp_path / "elsewhere"
    elsewhere.write_text("kept")
    part = tmp_path / "model.part.json"
    part.symlink_to(elsewhere)
    assert written(path) == 0o600
    assert elsewhere.read_text() == "kept"
    part.write_text("old")
    part.chmod(0o666)
    assert written(path) == 0o600
    assert not part.exists()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "model.json"
    path.write_text("old")

    def fail(part):
        part.write_text("half")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        replace_file(path, fail)
    assert [each.name for each in tmp_path.iterdir()] == ["model.json"]
    assert path.read_text() == "old"
