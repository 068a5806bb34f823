// The program serves the page: many runs, a search over a whole log, and a dashboard that is stopped and started again.
import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { launch, open } from "./browser.mjs";
import { copies, dashboard } from "./program.mjs";

const program = process.env.TRAINYARD_PROGRAM;
const folder = process.env.TRAINYARD_FOLDER;
const browser = await launch();
after(() => browser.close());

/** Files below a folder whose name ends with `.log`. */
const logs = (below) => readdirSync(below, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".log")).map((name) => join(below, name));

test("search_counts_as_grep_does", { timeout: 120_000 }, async () => {
  const served = await dashboard(program, folder);
  const it = await open(browser, { base: served.url, token: served.token, hash: "#/job/default/killed?att=2&find=step+1&rank=0&tab=logs" });
  try {
    const files = logs(join(folder, ".trainyard/runs/killed")).filter((name) => name.includes("/attempts/2/killed-worker-0/"));
    assert.equal(files.length, 1, `one log of rank 0: ${files}`);
    const count = readFileSync(files[0], "utf8").split("\n").filter((line) => line.includes("step 1")).length;
    assert.ok(count > 1);
    await it.page.waitForSelector("#hits");
    assert.equal((await it.page.textContent("#hits")).trim(), `${count} lines match`);
  } finally {
    await it.close();
    await served.end();
  }
});

test("stopped_dashboard_is_reported_and_resumed", { timeout: 180_000 }, async () => {
  const token = "a-token-that-is-the-same-after-a-new-start";
  const file = join(folder, "token.txt");
  writeFileSync(file, `${token}\n`, { mode: 0o600 });
  const first = await dashboard(program, folder, "--token-file", file);
  const it = await open(browser, { base: first.url, token, hash: "#/job/default/killed?tab=logs" });
  let second;
  try {
    await it.page.waitForSelector('#strip-field[data-ready="yes"]');
    for (const part of ["#verdict", "#groups"]) await it.page.waitForSelector(part);
    await it.page.waitForSelector("#live.live-live");
    await first.end();
    await it.page.click("text=reconnect now", { timeout: 60_000 });
    await it.page.waitForSelector("#stale >> text=The dashboard is not responding.", { timeout: 60_000 });
    assert.deepEqual(await it.page.locator(".failure").allTextContents(), [], "what is known stays as it is");
    assert.match(await it.page.textContent("#verdict"), /killed_from_outside/);
    second = await dashboard(program, folder, "--token-file", file, "--bind", new URL(first.url).host);
    await it.page.waitForSelector("#live.live-live", { timeout: 60_000 });
    await it.page.waitForSelector("#stale", { state: "detached" });
    assert.equal(it.seen.requests.filter((one) => one === first.url).length, 1, "no reload");
    assert.deepEqual(it.seen.errors, []);
  } finally {
    await it.close();
    await second?.end();
  }
});

test("many_runs_have_pages", { timeout: 180_000 }, async () => {
  copies(folder, "broken", Array.from({ length: 120 }, (_, at) => `sweep-${at}`));
  const served = await dashboard(program, folder);
  const it = await open(browser, { base: served.url, token: served.token });
  const names = () => it.page.$$eval("a[data-row]", (links) => links.map((link) => link.textContent));
  try {
    await it.page.waitForSelector("#jobs");
    const [, shown, total] = /(\d+) of (\d+) jobs/.exec(await it.page.textContent("main"));
    const seen = new Set(await names());
    assert.equal(seen.size, Number(shown));
    while (await it.page.$("text=next page")) {
      const before = (await names())[0];
      await it.page.click("text=next page");
      await it.page.waitForFunction((name) => document.querySelector("a[data-row]").textContent !== name, before);
      for (const name of await names()) seen.add(name);
    }
    assert.equal(seen.size, Number(total));
    assert.ok(seen.has("sweep-0") && seen.has("sweep-119"));
    await it.page.fill("input[data-filter]", "sweep-11");
    await it.page.waitForFunction(() => [...document.querySelectorAll("a[data-row]")].every((link) => link.textContent.startsWith("sweep-11")));
    // 11 and 110 to 119.
    assert.equal((await names()).length, 11);
  } finally {
    await it.close();
    await served.end();
  }
});
