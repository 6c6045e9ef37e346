"""Random schemas and payloads: every row is what Google's parser reads, field by field, on both ways of decoding."""

import random

import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st

from spark_app.records import Cause, Decodable
from spark_app.worker.decode import Decoder, decoder_for
from spark_app.worker.decode.columns import ColumnBuilder
from spark_app.worker.decode.reference import ReferenceParser
from tests.support.examples import examples
from tests.support.messages import NoTime, decodables, distort, expected, fill, pool_of, rows_of

ROWS = 8


def payloads_for(kind: type[Message], dice: random.Random) -> list[bytes]:
    whole = [fill(kind(), dice).SerializeToString(deterministic=dice.random() < 0.7) for _ in range(ROWS)]
    return [distort(payload, dice.choice(whole), dice) for payload in whole]


def judged(kind: type[Message], payload: bytes) -> object:
    """The row by Google's parser, or the cause why there is none."""
    try:
        return expected(kind.FromString(payload))
    except DecodeError:
        return Cause.DECODE_PAYLOAD
    except NoTime:
        return Cause.DECODE_RANGE


def decode(decoder: Decoder, payloads: list[bytes]) -> list[object]:
    """Row or cause, per payload."""
    decoded = decoder.decode(pa.array(payloads, pa.binary()))
    decoded.table.validate(full=True)
    assert decoded.table.schema == decoder.schema
    found: dict[int, object] = dict(zip(decoded.rows.tolist(), rows_of(decoded.table), strict=True))
    assert list(found) == sorted(found)
    found |= {row: cause for row, cause, _ in decoded.rejects}
    assert len(found) == len(decoded.rows) + len(decoded.rejects) == len(payloads)
    return [found[row] for row in range(len(payloads))]


@given(decodables(), st.integers(0, 2**32))
@examples()
def test_every_row_is_what_the_reference_parser_reads(decodable: Decodable, seed: int) -> None:
    dice = random.Random(seed)
    kind = message_factory.GetMessageClass(pool_of(decodable).FindMessageTypeByName("r.M"))
    decoder = decoder_for(decodable, (0,))
    assert decoder is not None
    payloads = payloads_for(kind, dice)
    assert decode(decoder, payloads) == [judged(kind, payload) for payload in payloads]


@given(decodables(), st.integers(0, 2**32))
@examples(0.3)
def test_the_fallback_builds_what_the_fast_path_builds(decodable: Decodable, seed: int) -> None:
    dice = random.Random(seed)
    message = pool_of(decodable).FindMessageTypeByName("r.M")
    payloads = payloads_for(message_factory.GetMessageClass(message), dice)
    odd = ReferenceParser(message).judge(pa.array(payloads, pa.binary()), keep=True).odd
    table, rows, refused = ColumnBuilder(message).build(odd)
    found: dict[int, object] = dict(zip(rows, rows_of(table), strict=True))
    found |= {row: cause for row, cause, _ in refused}
    decoder = decoder_for(decodable, (0,))
    assert decoder is not None
    assert [found.get(row, Cause.DECODE_PAYLOAD) for row in range(ROWS)] == decode(decoder, payloads)


def test_the_random_messages_take_the_fast_path() -> None:
    """Otherwise the properties above would compare the fallback with itself."""
    taken = []

    @given(decodables())
    @examples(0.2)
    def look(decodable: Decodable) -> None:
        decoder = decoder_for(decodable, (0,))
        assert decoder is not None
        taken.append(decoder._fast is not None)

    look()
    assert sum(taken) > len(taken) / 3
