"""Subjects of a registry that a test serves."""

from __future__ import annotations

from tests.support.answers import Answers
from tests.support.protos import PROTO3

SUBJECT = "orders-value"


class Subject:
    """A subject of a registry: version n has the schema id 10 + n. A version is the fields of the message `Event`, or
    a whole file."""

    def __init__(self, answers: Answers, *versions: str, name: str = SUBJECT):
        self._answers = answers
        self._name = name
        self.texts: list[str] = []
        for fields in versions:
            self.register(fields)

    def register(self, fields: str) -> None:
        text = f"{PROTO3}{fields}" if "message" in fields else f"{PROTO3}message Event {{ {fields} }}"
        self.texts.append(text)
        number = len(self.texts)
        self._answers.schema(10 + number, text)
        self._answers[f"/schemas/ids/{10 + number}/versions"] = (200, [{"subject": self._name, "version": number}])
        self._answers.version(self._name, number, text, id=10 + number)
        self._answers[f"/subjects/{self._name}/versions"] = (200, list(range(1, number + 1)))
