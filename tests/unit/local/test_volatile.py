"""The disk that loses: what was fsynced is there after every cut, and of the rest every part is lost some time."""

from collections.abc import Callable

import pytest

from tests.chaos.volatile import Disk, File, Missing

SEEDS = range(200)


def write(disk: Disk, path: str, data: bytes, number: int = 1, sync: bool = False) -> None:
    disk.create(path, number, 0.0)
    disk.write(number, data, 0, 0.0)
    if sync:
        disk.sync(number)
    disk.close(number)


def after(prepare: Callable[[Disk], None], path: str) -> set[bytes | None]:
    """Contents of the file over many cuts; None = it is not there."""
    found: set[bytes | None] = set()
    for seed in SEEDS:
        disk = Disk()
        prepare(disk)
        disk.cut(seed)
        try:
            node = disk.find(path)
            found.add(bytes(node.data) if isinstance(node, File) else b"folder")
        except Missing:
            found.add(None)
    return found


def durable(disk: Disk, path: str = "/a", data: bytes = b"old") -> None:
    write(disk, path, data, sync=True)
    disk.sync_folder("/")


def test_what_was_synced_stays() -> None:
    assert after(durable, "/a") == {b"old"}


def test_a_file_needs_its_folder_and_a_name_its_content() -> None:
    assert after(lambda disk: write(disk, "/a", b"new", sync=True), "/a") == {None, b"new"}

    def named(disk: Disk) -> None:
        write(disk, "/a", b"new")
        disk.sync_folder("/")

    assert after(named, "/a") >= {b"", b"new", b"ne", bytes(3)}


def test_replaced_durably_is_old_or_new_and_quickly_may_be_torn() -> None:
    def replace(disk: Disk, sync: bool) -> None:
        durable(disk)
        write(disk, "/b", b"new", 2, sync=sync)
        disk.rename("/b", "/a")

    assert after(lambda disk: replace(disk, True), "/a") == {b"old", b"new"}
    assert after(lambda disk: replace(disk, False), "/a") >= {b"old", b"new", b""}


def test_replacing_an_open_file_is_one_step() -> None:
    def replace(disk: Disk) -> None:
        durable(disk)
        write(disk, "/b", b"new", 2, sync=True)
        disk.apply(("hide", "/a", "/.fuse_hidden1"))
        disk.apply(("rename", "/b", "/a"))

    assert after(replace, "/a") == {b"old", b"new"}
    assert after(replace, "/.fuse_hidden1") == {None}


def test_removals_folders_and_links() -> None:
    def remove(disk: Disk) -> None:
        durable(disk)
        disk.remove("/a")

    assert after(remove, "/a") == {None, b"old"}

    def nested(disk: Disk) -> None:
        disk.make_folder("/f")
        write(disk, "/f/a", b"new", sync=True)
        disk.sync_folder("/f")

    assert after(nested, "/f/a") == {None, b"new"}

    def linked(disk: Disk) -> None:
        durable(disk)
        disk.link("/b", "/a")
        disk.remove("/a")
        disk.sync_folder("/")

    assert after(linked, "/b") == {b"old"}
    assert after(linked, "/a") == {None}


def test_a_seed_replays() -> None:
    def cut(seed: int) -> list[str]:
        disk = Disk()
        for number in range(20):
            write(disk, f"/{number}", b"data", number)
        disk.cut(seed)
        return sorted(disk.root.names)

    assert [cut(seed) for seed in SEEDS] == [cut(seed) for seed in SEEDS]
    assert len({tuple(cut(seed)) for seed in SEEDS}) > 20


def test_what_is_gone_is_missing() -> None:
    with pytest.raises(Missing):
        Disk().find("/a")
