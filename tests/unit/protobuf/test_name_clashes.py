"""Field names that the fast decoder cannot tell apart: decoded all the same, and its library is not asked."""

from __future__ import annotations

import pytest

from spark_app.protobuf.columns.types import clash_in, suits_ptars
from tests.support.protos import PROTO3, compile_text, message_class

PAIRS = [("user_id", "userid"), ("_row_id", "rowid"), ("a_b", "ab"), ("Name", "name")]


@pytest.mark.parametrize(("one", "other"), PAIRS)
@pytest.mark.parametrize(
    "text",
    [
        "message M {{ string {0} = 1; int64 {1} = 2; }}",
        "message M {{ Inner inner = 1; }} message Inner {{ string {0} = 1; int64 {1} = 2; }}",
        "message M {{ string a = 1; }} message Unused {{ message Inner {{ string {0} = 1; int64 {1} = 2; }} }}",
    ],
    ids=["own", "inner", "unused"],
)
def test_names_that_clash_are_decoded_by_googles_parser(
    one: str, other: str, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    kind = message_class(compile_text(PROTO3 + text.format(one, other)), "M").DESCRIPTOR
    assert not suits_ptars(kind)
    assert (clash_in([kind.file]) or "").startswith(f"{one} and {other} of ")
    assert capfd.readouterr().err == ""


def test_other_names_suit_the_fast_decoder() -> None:
    kind = message_class(compile_text(PROTO3 + "message M { string user_id = 1; int64 name = 2; }"), "M").DESCRIPTOR
    assert suits_ptars(kind)
    assert clash_in([kind.file]) is None
