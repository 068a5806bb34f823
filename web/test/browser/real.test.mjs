// Against the real program: TRAINYARD_URL is the address that `trainyard dashboard` prints. Needs at least one run; asserts only what holds for every run.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, test } from "node:test";
import { launch, open } from "./browser.mjs";

const url = new URL(process.env.TRAINYARD_URL);
const token = new URLSearchParams(url.hash.slice(1)).get("token");
url.hash = "";
const base = url.href;
const browser = await launch();
after(() => browser.close());
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

async function ask(path) {
  const answer = await fetch(`${base}api/v1/${path}`, { headers: { Authorization: `Bearer ${token}` } });
  assert.equal(answer.status, 200, path);
  return answer.json();
}

async function visit(hash, more, use) {
  const it = await open(browser, { base, token, hash, ...more });
  try {
    await use(it.page, it.seen);
    assert.deepEqual(it.seen.errors, []);
    assert.deepEqual(it.seen.requests.filter((one) => !one.startsWith(base)), []);
  } finally {
    await it.close();
  }
}

async function violations(page) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"] }));
  return found.violations.map((it) => `${it.id}: ${it.nodes.slice(0, 3).map((node) => node.target).join(" | ")}`);
}

const jobs = await ask("jobs?limit=200");
const row = jobs.rows[0];
const link = row && `#/job/${encodeURIComponent(row.namespace)}/${encodeURIComponent(row.job)}`;

test("palette_of_the_server_is_the_page's", async () => {
  const { STATES } = await import("../fixture/data.mjs");
  const { palette } = await ask("about");
  assert.deepEqual(palette.states.map((it) => it.name), STATES);
});

test("api_needs_the_token", async () => {
  for (const path of ["about", "jobs", "stream?topics=jobs"]) assert.equal((await fetch(`${base}api/v1/${path}`)).status, 401);
});

for (const theme of ["light", "dark"]) {
  for (const hash of ["#/jobs", "#/nodes", "#/queue", "#/failures"]) {
    test(`axe_finds_nothing ${hash} ${theme}`, () =>
      visit(hash, { theme }, async (page) => {
        await page.waitForSelector("#jobs, #not-here, #failures, .empty, .failure");
        await page.waitForSelector("#live.live-live");
        assert.deepEqual(await violations(page), []);
      }));
  }
  for (const tab of ["logs", "logs&view=lines", "seats", "metrics", "checkpoints", "events", "spec"]) {
    test(`job_page_works ${tab} ${theme}`, { skip: !row }, () =>
      visit(`${link}?tab=${tab}`, { theme }, async (page) => {
        await page.waitForSelector('#strip-field[data-ready="yes"]');
        await page.waitForFunction(() => !document.querySelector(".bone") && document.querySelector("#tab-panel > *"));
        await page.waitForSelector("#live.live-live");
        assert.equal(await page.$(".failure"), null);
        assert.deepEqual(await violations(page), []);
      }));
  }
}

test("sums_of_the_page_are_those_of_the_ledger", { skip: !row }, async () => {
  const ended = jobs.rows.find((it) => !it.live);
  if (!ended) return;
  const ledger = await ask(`runs/${encodeURIComponent(ended.id)}/ledger`);
  await visit(`#/job/${encodeURIComponent(ended.namespace)}/${encodeURIComponent(ended.job)}`, {}, async (page) => {
    await page.waitForSelector("#ledger table, #ledger p");
    const shown = await page.$$eval("#phases [data-millis]", (cells) => cells.map((cell) => Number(cell.dataset.millis)));
    assert.deepEqual(shown, ledger.phases.map((it) => it.millis));
    assert.equal(shown.reduce((sum, it) => sum + it, 0), ledger.wall);
  });
});

test("token_leaves_the_address_at_once", () =>
  visit("#/jobs", {}, async (page) => {
    await page.waitForSelector("#jobs, .empty");
    assert.equal(await page.evaluate(() => location.hash), "#/jobs");
  }));

test("page_has_no_horizontal_scroll_at_320_px", { skip: !row }, () =>
  visit(link, { width: 320 }, async (page) => {
    await page.waitForSelector('#strip-field[data-ready="yes"]');
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0);
  }));

test("strip_is_moved_by_keys", { skip: !row }, () =>
  visit(link, {}, async (page) => {
    await page.waitForSelector('#strip-field[data-ready="yes"]');
    await page.focus("#strip-field");
    await page.keyboard.press("ArrowRight");
    await page.waitForFunction(() => document.getElementById("announcement").textContent !== "");
    await page.keyboard.press("w");
    await page.waitForFunction(() => /from=\d+/.test(location.hash));
  }));
