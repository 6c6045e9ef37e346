"""Random schemas and payloads: every row is what Google's parser reads, field by field, on both ways of decoding."""

import random

import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from spark_app.audit.expected import rows_of
from spark_app.model.catalog import Decodable, DecodeOptions
from spark_app.model.causes import Cause
from spark_app.protobuf.decode import Decoder, arrow_schema, decoder_for
from tests.support.examples import examples
from tests.support.messages import decodables, distort, payloads_of, pool_of, row_or_cause

ROWS = 128  # a random schema costs as much as many of its messages
SEEDS = st.integers(0, 2**32)


def class_of(decodable: Decodable) -> type[Message]:
    return message_factory.GetMessageClass(pool_of(decodable).FindMessageTypeByName("r.M"))


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


def made(decodable: Decodable, options: DecodeOptions) -> Decoder:
    decoder = decoder_for(decodable, (0,), options)
    assert decoder is not None
    return decoder


def one_cause(decodable: Decodable, found: list[object], due: list[object]) -> list[object]:
    """A record may have two faults, a time out of range and, where strings need not be UTF-8, one that is not: either
    is its cause."""
    if FileDescriptorSet.FromString(decodable.descriptor_set).file[-1].syntax == "proto3":
        return found
    both = {Cause.DECODE_RANGE, Cause.DECODE_PAYLOAD}
    return [
        d if isinstance(f, Cause) and isinstance(d, Cause) and {f, d} == both else f
        for f, d in zip(found, due, strict=True)
    ]


def without_ptars(decodable: Decodable, options: DecodeOptions) -> Decoder:
    pool = pool_of(decodable)
    decoder = Decoder(pool.FindMessageTypeByName("r.M"), pool, options)
    decoder._fast = None
    return decoder


@given(decodables(), SEEDS, st.booleans())
@examples()
def test_every_row_is_what_the_reference_parser_reads(decodable: Decodable, seed: int, defaults: bool) -> None:
    dice = random.Random(seed)
    kind = class_of(decodable)
    whole = payloads_of(kind, dice, ROWS)
    payloads = [distort(payload, dice.choice(whole), dice) for payload in whole]
    due = [row_or_cause(kind, payload, defaults) for payload in payloads]
    options = DecodeOptions(defaults=defaults)
    assert one_cause(decodable, decode(made(decodable, options), payloads), due) == due
    fallback = without_ptars(decodable, options)
    assert fallback.schema == arrow_schema(kind.DESCRIPTOR) == made(decodable, options).schema
    assert one_cause(decodable, decode(fallback, payloads), due) == due


@given(decodables(tame=True), SEEDS, st.booleans())
@examples(0.1)
def test_without_strictness_whole_payloads_land_as_they_do_with_it(
    decodable: Decodable, seed: int, defaults: bool
) -> None:
    dice = random.Random(seed)
    kind = class_of(decodable)
    payloads = payloads_of(kind, dice, ROWS)
    trusting = made(decodable, DecodeOptions(strict=False, defaults=defaults))
    assert decode(trusting, payloads) == [row_or_cause(kind, payload, defaults) for payload in payloads]
    decode(trusting, [distort(payload, dice.choice(payloads), dice) for payload in payloads])


def test_the_random_messages_take_both_paths() -> None:
    """Otherwise the property above would compare the fallback with itself, or never meet it."""
    taken = []

    @given(decodables())
    @examples(0.2)
    def look(decodable: Decodable) -> None:
        taken.append(made(decodable, DecodeOptions())._fast is not None)

    look()
    assert len(taken) / 5 < sum(taken) < len(taken) * 4 / 5
