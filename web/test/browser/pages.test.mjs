// Every page in every theme and state: without violations of accessibility rules, without errors, inside its width.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { test } from "node:test";
import { BIG, JOB, SMOKE, stripReady, visit } from "./fixture.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

async function violations(page) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate((tags) => window.axe.run(document, { runOnly: tags }), TAGS);
  return violations.map((it) => `${it.id}: ${it.nodes.slice(0, 3).map((node) => `${node.target} ${node.failureSummary}`).join(" | ")}`);
}

/** What shows that the page has its state. */
const settled = {
  jobs: { data: "#jobs", empty: ".empty", error: ".failure" },
  job: { data: '#strip-field[data-ready="yes"]', empty: ".failure", error: ".failure" },
  nodes: { data: "#not-here", empty: "#not-here", error: ".failure" },
  queue: { data: "#not-here", empty: "#not-here", error: ".failure" },
  failures: { data: "#failures", empty: ".empty", error: ".failure" },
};

for (const theme of ["light", "dark"]) {
  for (const mode of ["data", "empty", "error"]) {
    for (const name of Object.keys(settled)) {
      test(`axe_finds_nothing ${name} ${theme} ${mode}`, async () => {
        const hash = name === "job" ? SMOKE : `#/${name}`;
        await visit({ mode, theme, hash }, async (page, seen) => {
          await page.waitForSelector(settled[name][mode]);
          await page.waitForSelector("#live.live-live");
          assert.deepEqual(await violations(page), []);
          assert.deepEqual(seen.errors, []);
        });
      });
    }
  }
  const tabs = [["logs", "#groups"], ["logs&view=lines&rank=0&offset=0", "#log-list .log-line"], ["seats", ".seat-node"], ["metrics", ".chart canvas"], ["checkpoints", "#checkpoints"], ["events", "#events li"], ["spec", ".raw"]];
  for (const [tab, there] of tabs) {
    test(`axe_finds_nothing job tab ${tab} ${theme}`, async () => {
      await visit({ theme, hash: `${tab === "logs" ? SMOKE : JOB}?tab=${tab}` }, async (page, seen) => {
        await page.waitForSelector(there);
        await stripReady(page);
        await page.click("text=as table");
        await page.waitForSelector("#strip-table");
        assert.deepEqual(await violations(page), []);
        assert.deepEqual(seen.errors, []);
      });
    });
    test(`tab_without_data_has_a_sentence ${tab} ${theme}`, async () => {
      if (tab.startsWith("logs&") || tab === "spec") return;
      await visit({ theme, mode: "bare", hash: `${SMOKE}?tab=${tab}` }, async (page) => {
        await page.waitForSelector("#tab-panel .empty");
        assert.deepEqual(await violations(page), []);
      });
    });
  }
  test(`axe_finds_nothing in dialogs ${theme}`, async () => {
    await visit({ theme }, async (page) => {
      await page.waitForSelector("#jobs");
      await page.keyboard.press("?");
      await page.waitForSelector("dialog[open] .keys");
      assert.deepEqual(await violations(page), []);
      await page.keyboard.press("Escape");
      await page.keyboard.press("Control+k");
      await page.waitForSelector("#goto-list li");
      assert.deepEqual(await violations(page), []);
    });
  });
}

test("without_a_token_the_page_asks_for_it", async () => {
  await visit({ token: "wrong" }, async (page) => {
    await page.waitForSelector("text=A token is needed");
    await page.waitForSelector("#token-advice >> text=Open the address that");
    assert.deepEqual(await violations(page), []);
    await page.fill("input[type=password]", "fixture-token");
    await page.click("text=use this token");
    await page.waitForSelector("#jobs");
  });
});

for (const [width, words] of [[320, "320 px"], [720, "200 % of 1,440 px"]]) {
  for (const hash of ["#/jobs", JOB, `${SMOKE}?tab=logs`, `${SMOKE}?tab=logs&view=lines&rank=0&offset=0`, `${BIG}?tab=seats`, `${JOB}?tab=metrics`, `${JOB}?tab=checkpoints`, `${JOB}?tab=events`, "#/failures", "#/nodes"]) {
    test(`page_has_no_horizontal_scroll ${words} ${hash}`, async () => {
      await visit({ hash, width }, async (page) => {
        await page.waitForSelector("#jobs, #strip-field[data-ready=yes], #failures, #not-here");
        await page.waitForFunction(() => !document.querySelector(".bone"));
        if (hash.includes("tab=")) await page.waitForSelector("#groups, #log-list, .seat-node, .chart canvas, #checkpoints, #events li");
        const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        assert.equal(over, 0);
      });
    });
  }
}

test("forced_colours_keep_everything", async () => {
  await visit({ hash: SMOKE, forcedColors: "active" }, async (page, seen) => {
    await stripReady(page);
    await page.waitForSelector(".legend li");
    assert.deepEqual(await violations(page), []);
    assert.deepEqual(seen.errors, []);
  });
});
