import assert from "node:assert/strict";
import { test } from "node:test";
import { credentials } from "../../src/auth";
import { format, jobLink, parse } from "../../src/route";

test("route_survives_a_round_trip", () => {
  const link = jobLink("team a", "x/y?z", { tab: "logs", rank: 17, from: undefined });
  const route = parse(link);
  assert.deepEqual(route, { page: "job", namespace: "team a", name: "x/y?z", query: { tab: "logs", rank: "17" } });
  assert.equal(format(route), link);
});

test("empty_fragment_is_the_list_of_jobs", () => {
  assert.equal(parse("").page, "jobs");
  assert.equal(parse("#/").page, "jobs");
});

test("unknown_pages_are_named_so", () => {
  assert.equal(parse("#/job/only-namespace").page, "unknown");
  assert.equal(parse("#/settings").page, "unknown");
  assert.equal(parse("#/job/%E0%A4%A/x").page, "job");
});

test("token_is_read_from_the_fragment", () => {
  assert.deepEqual(credentials("#token=abc"), { token: "abc", rest: "#/jobs" });
  assert.deepEqual(credentials("#token=abc&/job/a/b?tab=logs"), { token: "abc", rest: "#/job/a/b?tab=logs" });
  assert.deepEqual(credentials("#code=x1"), { code: "x1", rest: "#/jobs" });
  assert.deepEqual(credentials("#token=a%0Ab"), { rest: "#/jobs" });
  assert.equal(credentials("#/jobs?q=token=abc"), undefined);
});
