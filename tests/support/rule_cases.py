# ruff: noqa: E501, RUF001
"""Rules of protovalidate by kind of field, and values on both sides of each rule."""

from __future__ import annotations

from typing import Any


def quoted(value: str | bytes) -> str:
    """A literal of a .proto."""
    data = value.encode() if isinstance(value, str) else value
    return '"' + "".join(f"\\x{byte:02x}" for byte in data) + '"'


INTS = [0, 1, 2, 4, 5, 6, 7, 10, 11]
SIGNED = [*INTS, -1, -5]
WIDE = {
    "int32": [*SIGNED, 2**31 - 1, -(2**31)],
    "int64": [*SIGNED, 2**63 - 1, -(2**63), 2**53 + 1],
    "uint32": [*INTS, 2**32 - 1],
    "uint64": [*INTS, 2**64 - 1, 2**63],
}
INTEGERS = {
    kind: WIDE[f"{'u' if 'u' in kind or kind.startswith('fixed') else ''}int{kind[-2:]}"]
    for kind in ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64")
}
WRAPPERS = {"int32": "Int32Value", "int64": "Int64Value", "uint32": "UInt32Value", "uint64": "UInt64Value"}
NUMBER_RULES = [
    "{const: 5}", "{in: [1, 5, 7]}", "{in: [5]}", "{not_in: [0, 4]}", "{lt: 5}", "{lte: 5}", "{gt: 5}", "{gte: 5}",
    "{gt: 1, lt: 7}", "{gte: 1, lt: 7}", "{gt: 1, lte: 7}", "{gte: 1, lte: 7}", "{gt: 7, lt: 2}", "{gte: 7, lt: 2}",
    "{gt: 7, lte: 2}", "{gte: 7, lte: 2}", "{gt: 5, lt: 5}", "{gte: 5, lte: 5}", "{gt: 0, not_in: [7], example: 3}",
]  # fmt: skip
REALS = [0.0, -0.0, 1.0, 2.0, 4.0, 5.0, 5.5, 6.0, 7.0, 11.0, float("nan"), float("inf"), float("-inf"), 0.1, 1e-45]
REAL_RULES = [
    *NUMBER_RULES, "{finite: true}", "{finite: false}", "{const: nan}", "{in: [nan, 5]}", "{in: nan}", "{not_in: nan}",
    "{lt: nan}", "{gt: 1, lt: nan}", "{gte: nan}", "{lt: inf}", "{gte: -inf}", "{const: 0}", "{const: -0}",
    "{in: [0.1, 1e-45]}", "{not_in: [-0, inf]}", "{const: 0.1}", "{lte: 0.1}",
]  # fmt: skip
TEXTS = [
    "", "a", "b", "ab", "abc", "abcd", "abcde", "aab", "é", "éé", "日本語", "👨‍👩‍👧", "a\nb", "a\0b", "\0", "'", "''", '"', "\\", "\\'",
    "'); DROP TABLE x; --", "a%b_c", "$1", "x'41'", "\x7f", "\u202e", "\ufeff", "\U0010ffff", "\r\n", "A" * 300, "%s{}",
    "ab\n", "ABC", "É",
]  # fmt: skip
TEXT_RULES = [
    *(f"{{const: {quoted(one)}}}" for one in TEXTS),
    *(f"{{{name}: {quoted(one)}}}" for name in ("prefix", "suffix", "contains", "not_contains")
      for one in ("", "a", "b", "\0", "'", "\\", "é", "👩", "\u202e", "%", "'); DROP TABLE x; --")),
    f"{{in: [{', '.join(map(quoted, TEXTS))}]}}", f"{{in: [{quoted('a')}, {quoted(chr(39))}]}}",
    f"{{not_in: [{', '.join(map(quoted, TEXTS[::2]))}]}}",
    *(f"{{{name}: {size}}}" for name in ("len", "min_len", "max_len", "len_bytes", "min_bytes", "max_bytes")
      for size in (0, 1, 2, 3, 5, 299, 300, 2**64 - 1)),
    *(f"{{pattern: {quoted(one)}}}" for one in (
        "a", "^a", "b$", "^a.b$", "(?s)^a.b$", "(?i)^abc$", "(?i)é", r"^\d+$", r"\w", r"^\S*$", r"\bab\b", "a|b", "", "^$", "'",
        r"\\", r"\x00", "\0", r"^\pL+$", r"^\p{Greek}*$", "(a*)*$", "(a+)+b", "(?:a|aa)+$", "[^a]", r"\Aab", r"ab\z", "(?m)^ab$",
        "^.{1,2}$", r"\Q'); DROP\E", "(?P<x>a)", r"^[[:alpha:]]+$", r"\C", "(x+x+)+y",
    )),
]  # fmt: skip
FORMATS = [
    "email", "hostname", "ip", "ipv4", "ipv6", "address", "uuid", "tuuid", "ulid", "protobuf_fqn", "protobuf_dot_fqn",
]  # fmt: skip
FORMAT_RULES = [
    *(f"{{{name}: true}}" for name in FORMATS), "{email: false}",
    *(f"{{well_known_regex: {kind}{strict}}}" for kind in ("KNOWN_REGEX_HTTP_HEADER_NAME", "KNOWN_REGEX_HTTP_HEADER_VALUE",
      "KNOWN_REGEX_UNSPECIFIED") for strict in ("", ", strict: false", ", strict: true")),
]  # fmt: skip
FORMATTED = [
    "", "a", "a@b", "a@b.c", "a@b.c.", "@b", "a@", "a@-b", "a@b-", "a@b..c", "é@b.c", "a b@c", "a@b\n", f"a@{'b' * 63}",
    f"a@{'b' * 64}", "o'neil@x.y", "localhost", "a.b", "a.b.", ".", "a..b", "1", "1.2", "a.1", "a.1.", "1a", "-a", "a-", "a_b",
    "b" * 63, "b" * 64, ".".join(["b" * 49] * 5) + ".abc", ".".join(["b" * 49] * 5) + ".abcd", "x." * 126 + "x", "x." * 126 + "xy",
    "127.0.0.1", "0.0.0.0", "255.255.255.255", "256.0.0.1", "01.0.0.1", "1.2.3", "1.2.3.4.5", "1.2.3.4 ", "1.2.3.4\n", "١.2.3.4",
    "::", "::1", "1::", "1::1", ":::", "1:::1", "::1::", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8",
    "1:2:3:4:5:6::8", "1:2:3:4:5:6:7::8", "1:2:3:4:5:6:1.2.3.4", "::1.2.3.4", "::ffff:1.2.3.4", "1:2:3:4:5:1.2.3.4", "1::1.2.3.4",
    "1:2:3:4:5:6:7:1.2.3.4", "::1.2.3.256", "::12345", "::g", "FE80::1%eth0", "fe80::1%", "fe80::1%\n", "fe80::1%a%b", "1.2.3.4%a",
    "[::1]", "::1.2.3.4:5", "1:2", ":1", "1:", "::%\0", "12345678-1234-1234-1234-123456789abc", "12345678-1234-1234-1234-123456789ABG",
    "12345678123412341234123456789abc", "{12345678-1234-1234-1234-123456789abc}", "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "81ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAI", "a.b_c", ".a.b_c", "..a", "a.", ":path", "x-y", "x y", "x\ty", "x\r",
    "x\0", "\x7f", "[", "`", ",", "é", "\u0085",
]  # fmt: skip
BYTES = [
    b"", b"a", b"ab", b"\0", b"\xff", b"a\xff", b"\xffa", b"\xaa\xbb", b"\x0a\xab\xb0", b"'", b"\\", b"\\x41", "é".encode(),
    bytes(4), bytes(15), bytes(16), bytes(range(256)), b"\xab", b"\xba",
]  # fmt: skip
BYTE_RULES = [
    *(f"{{const: {quoted(one)}}}" for one in BYTES),
    *(f"{{{name}: {quoted(one)}}}" for name in ("prefix", "suffix", "contains")
      for one in (b"", b"a", b"\0", b"\xff", b"\xab", b"\xaa\xbb", b"'", b"\\")),
    f"{{in: [{', '.join(map(quoted, BYTES))}]}}", f"{{in: {quoted(b'a')}}}", f"{{not_in: [{', '.join(map(quoted, BYTES[::2]))}]}}",
    *(f"{{{name}: {size}}}" for name in ("len", "min_len", "max_len") for size in (0, 1, 2, 16, 2**64 - 1)),
    *(f"{{{name}: {on}}}" for name in ("ip", "ipv4", "ipv6", "uuid") for on in ("true", "false")),
    *(f"{{pattern: {quoted(one)}}}" for one in ("a", "^$", r"^\x00", "é", "^.*$", "(?s)^.*$")),
]  # fmt: skip
NAMES = [0, 1, 2, -7, 2**31 - 1, 3, -(2**31)]
ENUM_RULES = [
    "{const: 1}", "{const: 0}", "{const: 3}", "{const: -7}", "{in: [1, 3]}", "{in: [2]}", "{not_in: [0, 2147483647]}", "{defined_only: true}",
    "{defined_only: false}", "{defined_only: true, not_in: 1}",
]  # fmt: skip
TIMES = [
    (0, 0),
    (0, 1000),
    (1, 0),
    (5, 0),
    (4, 999_999_000),
    (5, 1000),
    (6, 0),
    (-1, 0),
    (-62_135_596_800, 0),
    (253_402_300_799, 999_999_000),
]
DURATIONS = [*TIMES[:7], (-1, 0), (0, -1000), (-5, -1000), (315_576_000_000, 0), (-315_576_000_000, 0)]
TIME_RULES = [
    "{const: {seconds: 5}}", "{const: {nanos: 1000}}", "{lt: {seconds: 5}}", "{lte: {seconds: 5}}", "{gt: {seconds: 5}}",
    "{gte: {seconds: 5}}", "{gt: {seconds: 1}, lt: {seconds: 5}}", "{gte: {seconds: 1}, lte: {seconds: 5}}",
    "{gt: {seconds: 5}, lt: {seconds: 1}}", "{gte: {seconds: 5}, lte: {seconds: 1}}", "{gte: {seconds: 5}, lt: {seconds: 5}}",
    "{lt: {seconds: -1}}",
]  # fmt: skip
DURATION_RULES = [
    *TIME_RULES,
    "{in: [{seconds: 5}, {nanos: 1000}]}",
    "{not_in: [{seconds: 5}, {}]}",
    "{lt: {nanos: -1000}}",
]


# Kind -> (type of the field, its wrapper, rules, values); "string" and "format" are texts.
KINDS: dict[str, tuple[str, str, list[str], list[Any]]] = {
    **{kind: (kind, WRAPPERS.get(kind, ""), NUMBER_RULES, values) for kind, values in INTEGERS.items()},
    "float": ("float", "FloatValue", REAL_RULES, REALS),
    "double": ("double", "DoubleValue", REAL_RULES, REALS),
    "string": ("string", "StringValue", TEXT_RULES, TEXTS),
    "format": ("string", "StringValue", FORMAT_RULES, FORMATTED),
    "bytes": ("bytes", "BytesValue", BYTE_RULES, BYTES),
    "enum": ("E", "", ENUM_RULES, NAMES),
    "bool": ("bool", "BoolValue", ["{const: true}", "{const: false}"], [True, False]),
    "timestamp": ("google.protobuf.Timestamp", "", TIME_RULES, TIMES),
    "duration": ("google.protobuf.Duration", "", DURATION_RULES, DURATIONS),
}

NESTED = """
message M { Mid mid = 1; repeated Mid mids = 2; map<string, Mid> named = 3; Group group = 4; repeated Group groups = 5; Leaf leaf = 6;
 repeated string req = 7 [(buf.validate.field).required = true]; map<string,int32> reqm = 8 [(buf.validate.field).required = true];
 repeated int32 iz = 9 [(buf.validate.field) = {ignore: IGNORE_IF_ZERO_VALUE, repeated: {min_items: 2}}]; map<string,int32> mz = 10 [(buf.validate.field) = {ignore: IGNORE_IF_ZERO_VALUE, map: {min_pairs: 2, max_pairs: 3, keys: {string: {min_len: 1, max_len: 2}}, values: {int32: {gt: 5}}}}];
 map<string,int32> mp = 11 [(buf.validate.field).map = {min_pairs: 1, max_pairs: 2, keys: {string: {prefix: "a"}, ignore: IGNORE_IF_ZERO_VALUE}, values: {ignore: IGNORE_ALWAYS, int32: {gt: 5}}}];
 map<bool,E> me = 12 [(buf.validate.field).map = {keys: {bool: {const: true}}, values: {enum: {in: [1,3]}}}];
 map<uint64,bytes> mu = 13 [(buf.validate.field).map = {keys: {uint64: {gte: 5}}, values: {bytes: {min_len: 1}}}];
 repeated string us = 14 [(buf.validate.field).repeated.unique = true]; repeated bytes ub = 15 [(buf.validate.field).repeated.unique = true]; repeated E ue = 16 [(buf.validate.field).repeated.unique = true]; repeated bool uo = 17 [(buf.validate.field).repeated.unique = true]; repeated uint64 uu = 18 [(buf.validate.field).repeated.unique = true];
 oneof pick { option (buf.validate.oneof).required = true; string p1 = 20 [(buf.validate.field).required = true]; Leaf p2 = 21; Empty p3 = 22; google.protobuf.Timestamp p4 = 23 [(buf.validate.field).timestamp.gt = {seconds: 5}]; }
 google.protobuf.Any any = 24 [(buf.validate.field).required = true]; google.protobuf.Int32Value w = 25 [(buf.validate.field) = {required: true, int32: {gt: 5}}];
 repeated google.protobuf.Int32Value ws = 26 [(buf.validate.field).repeated.items.int32.gt = 5];
 repeated google.protobuf.Int32Value wz = 27 [(buf.validate.field).repeated.items = {ignore: IGNORE_IF_ZERO_VALUE, int32: {gt: 5}}];
 repeated google.protobuf.DoubleValue wd = 28 [(buf.validate.field).repeated.items = {ignore: IGNORE_IF_ZERO_VALUE, double: {gt: 5}}];
 optional E oe = 29 [(buf.validate.field).required = true]; E re = 30 [(buf.validate.field).required = true]; bool rb = 31 [(buf.validate.field).required = true];
 double rd = 32 [(buf.validate.field).required = true]; double dz = 33 [(buf.validate.field) = {ignore: IGNORE_IF_ZERO_VALUE, double: {gt: 5}}]; repeated double ld = 34 [(buf.validate.field).repeated.items = {ignore: IGNORE_IF_ZERO_VALUE, double: {gt: 5}}];
 optional string os = 35 [(buf.validate.field) = {ignore: IGNORE_IF_ZERO_VALUE, string: {min_len: 2}}];
 map<string, google.protobuf.StringValue> mw = 36 [(buf.validate.field).map.values = {ignore: IGNORE_IF_ZERO_VALUE, string: {min_len: 2}}];
 repeated bytes lb = 37 [(buf.validate.field).repeated.items = {ignore: IGNORE_IF_ZERO_VALUE, bytes: {min_len: 2}}];
}
message Leaf { string s = 1 [(buf.validate.field).string.min_len = 2]; int32 n = 2 [(buf.validate.field).int32 = {gt: 5}];
  optional bytes b = 3 [(buf.validate.field).bytes.max_len = 1]; repeated int32 l = 4 [(buf.validate.field).repeated = {min_items: 1, max_items: 2, unique: true}];
  oneof c { option (buf.validate.oneof).required = true; string x = 5 [(buf.validate.field).string.len = 1]; int32 y = 6; E z = 7 [(buf.validate.field).enum.defined_only = true]; } }
message Empty {}
message Group { option (buf.validate.message).oneof = {fields: ["a", "b"]}; option (buf.validate.message).oneof = {fields: ["c", "d", "l", "m"], required: true};
  string a = 1 [(buf.validate.field).string.min_len = 2]; optional int32 b = 2; int32 c = 3 [(buf.validate.field).int32.gt = 5]; Leaf d = 4; repeated int32 l = 5; map<string, int32> m = 6;
  double e = 7 [(buf.validate.field).double.gt=5]; }
message Mid { Leaf leaf = 1; repeated Leaf leaves = 2; map<int32, Leaf> named = 3; Leaf must = 4 [(buf.validate.field).required = true]; Leaf skipped = 5 [(buf.validate.field).ignore = IGNORE_ALWAYS];
  repeated Leaf unchecked = 6 [(buf.validate.field).repeated = {min_items: 1, items: {ignore: IGNORE_ALWAYS}}]; Empty empty = 7 [(buf.validate.field).required = true]; Leaf zero = 8 [(buf.validate.field).ignore = IGNORE_IF_ZERO_VALUE]; }
"""

PROTO2 = """
message M { optional string s = 1 [default = "abc", (buf.validate.field).string.min_len = 2]; optional int32 n = 2 [default = 3, (buf.validate.field) = {required: true, int32: {gt: 5}}]; optional C c = 3 [(buf.validate.field) = {ignore: IGNORE_IF_ZERO_VALUE, enum: {const: 1}}];
 optional group G = 4 { optional int32 a = 1 [(buf.validate.field).int32.gt = 5]; } repeated group H = 5 { optional int32 a = 1 [(buf.validate.field).int32.gt = 5]; } optional Leaf leaf = 6; repeated Leaf leaves = 7; repeated C cs = 8 [(buf.validate.field).repeated.items = {ignore: IGNORE_IF_ZERO_VALUE, enum: {const: 1}}]; optional bool b = 9 [default = true, (buf.validate.field).bool.const = true]; optional double d = 10 [default = nan, (buf.validate.field).double.gt = 5];
 oneof o { option (buf.validate.oneof).required = true; int32 o1 = 11 [(buf.validate.field).int32.gt = 5]; string o2 = 12 [(buf.validate.field) = {required: true, string: {min_len: 2}}]; } }
enum C { C5 = 5; C0 = 0; C1 = 1; }
message Leaf { optional string s = 1 [(buf.validate.field).string.min_len = 2]; required int32 n = 2 [(buf.validate.field).int32 = {gt: 5}]; optional C c = 3 [(buf.validate.field).enum.in = 5]; repeated C l = 4 [(buf.validate.field).repeated.items = {ignore: IGNORE_IF_ZERO_VALUE, enum: {const: 1}}]; }
"""

EDITIONS = """
message M { int32 a = 1 [(buf.validate.field).int32.gt = 5]; int32 b = 2 [features.field_presence = IMPLICIT, (buf.validate.field).int32.gt = 5]; int32 c = 3 [features.field_presence = LEGACY_REQUIRED, (buf.validate.field).int32.gt = 5];
 Leaf leaf = 4; Leaf del = 5 [features.message_encoding = DELIMITED]; E e = 6 [features.field_presence = IMPLICIT, (buf.validate.field) = {required: true, enum: {not_in: 1}}]; string s = 7 [default = "abc", (buf.validate.field) = {ignore: IGNORE_IF_ZERO_VALUE, string: {min_len: 2}}]; repeated Leaf ls = 8; }
message Leaf { string s = 1 [features.field_presence = IMPLICIT, (buf.validate.field).string.min_len = 2]; int32 n = 2 [(buf.validate.field).int32 = {gt: 5}]; }
"""
