# ruff: noqa: E501
"""Schemas with rules of protovalidate: messages within messages, proto2, and editions."""

from __future__ import annotations


def quoted(value: str | bytes) -> str:
    """A literal of a .proto."""
    data = value.encode() if isinstance(value, str) else value
    return '"' + "".join(f"\\x{byte:02x}" for byte in data) + '"'


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
