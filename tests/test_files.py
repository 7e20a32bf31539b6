"""Files that are there whole or not at all, one writer at a time, and only regular ones."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from diptych.errors import InputError
from diptych.files import (
    file_sha256,
    only_writer,
    open_regular,
    program_versions,
    remove_unfinished,
    replacing,
    replacing_folder,
    unfinished,
    write_bytes,
    write_json,
)


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "image.nii.gz"
    path.write_text("old")
    with replacing(path) as part:
        part.write_text("new")
        assert path.read_text() == "old"
        assert part.name.startswith(".")
        assert part.name.endswith(".nii.gz")  # writers of images choose their format by it
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(IsADirectoryError), replacing(path) as part:
        part.write_bytes(tmp_path.read_bytes())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    for text in ("old", "new"):
        with replacing_folder(folder) as part:
            (part / "inner").mkdir()
            (part / "inner" / "file").write_text(text)
    assert (folder / "inner" / "file").read_text() == "new"
    assert list(tmp_path.iterdir()) == [folder]


def test_a_failure_leaves_the_old_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    with pytest.raises(IsADirectoryError), replacing_folder(folder) as part:
        (part / "half").write_bytes(tmp_path.read_bytes())
    assert list(tmp_path.rglob("*")) == [folder]


def test_what_a_kill_leaves_is_known_as_rubbish(tmp_path: Path) -> None:
    with replacing(tmp_path / "file") as part, replacing_folder(tmp_path / "folder") as folder:
        part.write_text("half")
        assert unfinished(tmp_path) == sorted([part, folder])
        remove_unfinished(tmp_path)
        assert not list(tmp_path.iterdir())
        part.write_text("whole")
        folder.mkdir()


def test_private_files_are_the_owners(tmp_path: Path) -> None:
    write_bytes(tmp_path / "codes", b"1", private=True)
    assert (tmp_path / "codes").stat().st_mode & 0o777 == 0o600


def test_json_takes_paths(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"out": tmp_path})
    assert str(tmp_path) in (tmp_path / "a.json").read_text()


def test_sha256_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"diptych")
    assert file_sha256(tmp_path / "file") == hashlib.sha256(b"diptych").hexdigest()


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "link", Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file"):
            open_regular(path)
    (tmp_path / "file").write_text("text")
    (tmp_path / "good").symlink_to(tmp_path / "file")
    with open_regular(tmp_path / "good") as file:
        assert file.read() == b"text"


def test_a_second_writer_is_told_who_writes(tmp_path: Path) -> None:
    with (
        only_writer(tmp_path),
        pytest.raises(InputError, match=rf"another run is writing here \(process {os.getpid()}\)"),
        only_writer(tmp_path),
    ):
        pass
    with only_writer(tmp_path):
        pass


def test_versions_name_what_is_not_there() -> None:
    versions = program_versions("numpy", "no-such-package")
    assert list(versions) == ["python", "diptych", "numpy", "no-such-package"]
    assert versions["no-such-package"] == "not installed as a package"
