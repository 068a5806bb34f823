// A run beside an open page of the real program: what happens is on the page without a reload.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { test, after } from "node:test";
import { launch, open } from "./browser.mjs";
import { jobFile } from "./program.mjs";

const program = process.env.TRAINYARD_PROGRAM;
const folder = process.env.TRAINYARD_FOLDER;
const url = new URL(process.env.TRAINYARD_URL);
const token = new URLSearchParams(url.hash.slice(1)).get("token");
url.hash = "";
const base = url.href;
const browser = await launch();
after(() => browser.close());

const ask = async (path) => (await fetch(`${base}api/v1/${path}`, { headers: { Authorization: `Bearer ${token}` } })).json();

test("killed_rank_is_shown_without_a_reload", { timeout: 180_000 }, async () => {
  const file = jobFile(folder, "live", 4, "for i in $(seq 1 80); do echo step $i loss 0.$i; sleep 0.1; done");
  const it = await open(browser, { base, token, hash: "#/jobs" });
  const run = spawn(program, ["run", file, "--quiet", "--inject", "kill rank=2 at=4s"], { cwd: folder, stdio: "ignore" });
  const ended = new Promise((done) => run.on("exit", done));
  try {
    // The row comes by itself; from there to the job, as a person would.
    await it.page.getByRole("link", { name: "live", exact: true }).click({ timeout: 60_000 });
    await it.page.waitForSelector('#strip-field[data-ready="yes"]', { timeout: 60_000 });
    const loads = it.seen.requests.filter((one) => one === base).length;
    const shownAt = await it.page.waitForFunction(() => /killed_from_outside/.test(document.body.innerText) && Date.now(), undefined, { timeout: 60_000 });
    const { verdicts } = await ask(`runs/${encodeURIComponent((await ask("jobs/default/live")).run)}/verdicts`);
    const at = typeof verdicts[0].at === "number" ? verdicts[0].at : Date.parse(verdicts[0].at);
    console.log(`the verdict was on the page ${(await shownAt.jsonValue()) - at} ms after the failure`);
    assert.equal(await ended, 0);
    await it.page.waitForFunction(() => /Succeeded/.test(document.body.innerText), undefined, { timeout: 60_000 });
    assert.equal(it.seen.requests.filter((one) => one === base).length, loads, "no reload");
    // The mark of the failure is on the strip, and the header has the next attempt.
    await it.page.waitForFunction(() => /failure/.test(document.querySelector(".legend")?.textContent) && /attempt2/.test(document.querySelector(".job-head .facts").textContent));
    // The sums on the page are those of the status, to the millisecond.
    const status = JSON.parse(spawnSync(program, ["status", "live", "--format", "json"], { cwd: folder, encoding: "utf8" }).stdout);
    const sums = Object.values(status.ledger).filter((millis) => millis > 0);
    await it.page.waitForFunction((total) => {
      const cells = [...document.querySelectorAll("#phases [data-millis]")];
      return cells.reduce((sum, cell) => sum + Number(cell.dataset.millis), 0) === total;
    }, sums.reduce((sum, millis) => sum + millis, 0), { timeout: 60_000 });
    assert.deepEqual(it.seen.errors, []);
  } finally {
    await it.close();
  }
});

test("hostile_lines_are_text", { timeout: 120_000 }, async () => {
  const it = await open(browser, { base, token, hash: "#/job/default/broken?tab=logs&view=lines" });
  try {
    await it.page.waitForFunction(() => /<img src=x onerror/.test(document.body.innerText), undefined, { timeout: 60_000 });
    assert.equal(await it.page.$("img[src=x]"), null);
    assert.equal(await it.page.$('a[href*="evil.example"]'), null);
    assert.ok(!(await it.page.evaluate(() => document.body.textContent.includes("\u202e"))), "the mark that reverses text is not in the page");
    assert.deepEqual(it.seen.requests.filter((one) => !one.startsWith(base)), []);
  } finally {
    await it.close();
  }
});
