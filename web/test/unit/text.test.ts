import assert from "node:assert/strict";
import { test } from "node:test";
import { quote, commandOf } from "../../src/clipboard";
import { pieces, plain } from "../../src/text";

test("plain_text_is_one_piece", () => {
  assert.deepEqual(pieces("step 1 loss 2.1"), [{ text: "step 1 loss 2.1", style: "" }]);
});

test("ansi_colours_become_classes", () => {
  const found = pieces("\u001b[31mred\u001b[0m \u001b[1;92mgood\u001b[22m still\u001b[39m");
  assert.deepEqual(found, [
    { text: "red", style: "a-c-red" },
    { text: " ", style: "" },
    { text: "good", style: "a-bold a-c-green" },
    { text: " still", style: "a-c-green" },
  ]);
});

test("wide_colours_are_skipped_with_their_numbers", () => {
  assert.deepEqual(pieces("\u001b[38;5;31mx\u001b[48;2;31;32;33my"), [
    { text: "x", style: "" },
    { text: "y", style: "" },
  ]);
});

test("other_escapes_are_dropped", () => {
  assert.equal(plain("a\u001b[2J\u001b[?25l\u001b]8;;http://x/\u0007link\u001b]8;;\u001b\\\u001bc\u001b(Bz"), "alinkz");
  assert.equal(plain("a\u009b31mb\u009d0;title\u009cc"), "abc");
});

test("hidden_characters_are_code_points", () => {
  assert.equal(plain("a\u202Eb\u200Bc\u0000\u0007\r d\u2066"), "aU+202EbU+200BcU+0000U+0007U+000D dU+2066");
  assert.ok(pieces("a\u202Eb")[1]?.code);
  assert.equal(plain("\u{e0041}x"), "U+E0041x");
  assert.equal(plain("tab\tstays"), "tab\tstays");
});

test("line_end_is_not_shown", () => {
  assert.equal(plain("line\r\n"), "line");
});

test("hostile_lines_take_linear_time", () => {
  const began = performance.now();
  for (const raw of [`\u001b[${"1".repeat(60_000)}`, "\u001b]".repeat(30_000), "\u001b".repeat(60_000), "\u202e".repeat(30_000)]) plain(raw);
  assert.ok(performance.now() - began < 2000);
});

test("shell_arguments_are_quoted", () => {
  assert.equal(quote("smoke-1"), "smoke-1");
  assert.equal(quote("a b"), "'a b'");
  assert.equal(quote("$(rm -rf ~)'\nx"), "'$(rm -rf ~)'\\''U+000Ax'");
  assert.equal(quote("--all"), "'--all'");
});

test("commands_print_what_the_page_shows", () => {
  assert.equal(commandOf({ page: "jobs", query: {} }), "trainyard ps");
  const job = { page: "job" as const, namespace: "a", name: "sft", query: { tab: "logs", att: "2", rank: "17" } };
  assert.equal(commandOf(job), "trainyard logs sft --attempt 2 --rank 17");
  assert.equal(commandOf(job, "verdict"), "trainyard explain sft");
  assert.equal(commandOf({ ...job, query: { tab: "logs", find: "a.b" } }), "trainyard logs sft --first-failure --grep 'a\\.b'");
});
