"""The model of a disk that keeps only what was fsynced. `mount` makes a file system of it.

Contents become durable by fsync of the file, names by fsync of their folder, and by nothing else. The effect of a cut
on the rest is random: a file has its old content, its new one, a part of it, or zeros in its length; of the changes of
names the first ones remain, as a journal keeps them, or any of them, as POSIX allows.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

Operation = tuple[Any, ...]  # the name of a method of `Disk`, then its arguments


class Missing(Exception):
    """The path does not exist."""


@dataclass
class File:
    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    dirty: bool = False
    moment: float = 0.0  # time of the last change, in seconds

    def survive(self, luck: float, dice: random.Random) -> bytes:
        """Its content after a cut; `luck` is the probability that unsynced content reached the disk."""
        if not self.dirty:
            return self.durable
        if dice.random() < luck:
            return bytes(self.data)
        cut = dice.randrange(len(self.data) + 1)
        torn = bytes(self.data[:cut])
        return dice.choice([self.durable, self.durable, torn, torn + bytes(len(self.data) - cut)])


@dataclass(eq=False)
class Folder:
    names: dict[str, File | Folder] = field(default_factory=dict)
    durable: dict[str, File | Folder] = field(default_factory=dict)


Node = File | Folder
Rename = list[tuple[Folder, str, Node | None]]  # the changes of names by one operation; None removes


class Disk:
    """File operations by absolute path. Open files have numbers."""

    def __init__(self) -> None:
        self.root = Folder()
        self._pending: list[Rename] = []
        self._open: dict[int, File] = {}
        self._hidden: str | None = None  # the open file that the last operation removed

    def apply(self, operation: Operation) -> None:
        getattr(self, operation[0])(*operation[1:])
        if operation[0] != "hide":
            self._hidden = None

    def find(self, path: str) -> Node:
        node: Node = self.root
        for part in path.strip("/").split("/") if path != "/" else ():
            if not isinstance(node, Folder) or part not in node.names:
                raise Missing(path)
            node = node.names[part]
        return node

    def opened(self, number: int) -> File | None:
        return self._open.get(number)

    def create(self, path: str, number: int, moment: float) -> None:
        self._open[number] = File(dirty=True, moment=moment)
        self._rename((path, self._open[number]))

    def open(self, path: str, number: int) -> None:
        node = self.find(path)
        assert isinstance(node, File)
        self._open[number] = node

    def close(self, number: int) -> None:
        del self._open[number]

    def write(self, number: int, data: bytes, offset: int, moment: float) -> None:
        file = self._open[number]
        file.data.extend(bytes(max(0, offset - len(file.data))))
        file.data[offset : offset + len(data)] = data
        file.dirty, file.moment = True, moment

    def truncate(self, path: str, length: int, moment: float) -> None:
        file = self.find(path)
        assert isinstance(file, File)
        file.data[length:] = bytes(max(0, length - len(file.data)))
        file.dirty, file.moment = True, moment

    def make_folder(self, path: str) -> None:
        self._rename((path, Folder()))

    def link(self, new: str, old: str) -> None:
        self._rename((new, self.find(old)))

    def rename(self, old: str, new: str) -> None:
        if self._hidden == new:
            self._pending.pop()  # libfuse hides the replaced file first: both are one change
        self._rename((new, self.find(old)), (old, None))

    def hide(self, path: str, name: str) -> None:
        """Remove an open file, but keep it under another name until it is closed."""
        node = self.find(path)
        self.remove(path)
        self._rename((name, node))
        self._pending.pop()
        self._hidden = path

    def unhide(self, path: str) -> None:
        self._rename((path, None))
        self._pending.pop()

    def remove(self, path: str) -> None:
        self.find(path)
        self._rename((path, None))

    def sync(self, number: int) -> None:
        file = self._open[number]
        file.durable, file.dirty = bytes(file.data), False

    def sync_folder(self, path: str) -> None:
        folder = self.find(path)
        done = [change for change in self._pending if any(where is folder for where, _, _ in change)]
        for change in done:
            _make_durable(change)
        self._pending = [change for change in self._pending if all(change is not other for other in done)]

    def cut(self, seed: int) -> None:
        """Lose what was not synced. The rest is durable."""
        dice = random.Random(seed)
        luck = dice.choice([0, 0.5, 0.9, 1])
        for change in self._surviving(luck, dice):
            _make_durable(change)
        self._pending, self._open = [], {}
        self.root = _reborn(self.root, luck, dice, {})

    def copy(self) -> Disk:
        """A copy of a disk right after a cut."""
        other = Disk()
        other.root = _reborn(self.root, 1, random.Random(0), {})
        return other

    def _surviving(self, luck: float, dice: random.Random) -> list[Rename]:
        if dice.random() < 0.5:
            return self._pending[: dice.randint(0, len(self._pending))]
        return [change for change in self._pending if dice.random() < luck]

    def _rename(self, *changes: tuple[str, Node | None]) -> None:
        pending: Rename = []
        for path, node in changes:
            parent, _, name = path.rpartition("/")
            folder = self.find(parent or "/")
            assert isinstance(folder, Folder)
            _set(folder.names, name, node)
            pending.append((folder, name, node))
        self._pending.append(pending)


def _set(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _make_durable(change: Rename) -> None:
    for folder, name, node in change:
        _set(folder.durable, name, node)


def _reborn(folder: Folder, luck: float, dice: random.Random, seen: dict[int, Node]) -> Folder:
    names: dict[str, Node] = {}
    for name, node in folder.durable.items():
        if id(node) not in seen:
            if isinstance(node, Folder):
                seen[id(node)] = _reborn(node, luck, dice, seen)
            else:
                data = node.survive(luck, dice)
                seen[id(node)] = File(bytearray(data), data, moment=node.moment)
        names[name] = seen[id(node)]
    return Folder(names, dict(names))
