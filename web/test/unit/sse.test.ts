import assert from "node:assert/strict";
import { test } from "node:test";
import { backOff, reader } from "../../src/sse";

test("events_are_read_across_chunks", () => {
  const read = reader();
  assert.deepEqual(read("id: 4\nevent: ru"), []);
  assert.deepEqual(read('n\ndata: {"a":'), []);
  assert.deepEqual(read('1}\n\n: comment\n\n'), [{ id: "4", event: "run", data: '{"a":1}' }]);
});

test("line_ends_of_all_kinds_are_read", () => {
  assert.deepEqual(reader()("data: a\r\ndata: b\r\n\r\n"), [{ event: "message", data: "a\nb" }]);
});

test("events_that_are_too_long_are_dropped", () => {
  const read = reader();
  const long = `data: ${"x".repeat(200_000)}\n\n`;
  assert.deepEqual(read(long), []);
  assert.deepEqual(read("data: y\n\n"), [{ event: "message", data: "y" }]);
});

test("back_off_grows_to_thirty_seconds", () => {
  assert.equal(backOff(1, 1), 500);
  assert.equal(backOff(1, 0), 250);
  assert.equal(backOff(3, 1), 2000);
  assert.equal(backOff(50, 1), 30_000);
});
