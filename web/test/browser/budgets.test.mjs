// What the page may cost: bytes, requests, time of frames, memory; and the pixels of the strip.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { random, STATES } from "../fixture/data.mjs";
import { assets, BIG, browser, JOB, server, stripReady, visit } from "./fixture.mjs";

const web = join(dirname(fileURLToPath(import.meta.url)), "../..");
const shots = join(web, ".tmp/screenshots");
mkdirSync(shots, { recursive: true });

const percentile = (values, share) => [...values].sort((one, other) => one - other)[Math.min(values.length - 1, Math.floor(values.length * share))];

test("stored_bundle_is_what_the_sources_build", () => {
  execFileSync(process.execPath, [join(web, "build.mjs"), "--check"]);
});

test("bundle_is_small", () => {
  const size = ["app.js", "app.css"].reduce((sum, name) => sum + gzipSync(readFileSync(join(assets, name)), { level: 9 }).length, 0);
  console.log(`JS and CSS: ${size} bytes gzipped`);
  assert.ok(size <= 80_000, `${size} bytes`);
});

test("bundle_has_no_way_to_make_markup", () => {
  const js = readFileSync(join(assets, "app.js"), "utf8");
  // Preact names innerHTML in code that only `dangerouslySetInnerHTML` reaches; nothing of ours may use it.
  assert.ok(!/\beval\(|new Function\(|document\.write|insertAdjacentHTML|outerHTML/.test(js));
  assert.ok(!/<script[^>]*>[^<]|<style|\son\w+=/.test(readFileSync(join(assets, "index.html"), "utf8")));
});

for (const [name, hash, ready] of [["jobs", "#/jobs", "#jobs"], ["job", JOB, '#strip-field[data-ready="yes"]']]) {
  test(`first_view_is_cheap ${name}`, async () => {
    // A fresh profile: nothing is cached.
    const { base } = await server();
    const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
    try {
      const fresh = await context.newPage();
      await fresh.addInitScript(() => {
        window.__long = [];
        new PerformanceObserver((list) => window.__long.push(...list.getEntries().map((it) => it.duration))).observe({ type: "longtask", buffered: true });
      });
      const session = await context.newCDPSession(fresh);
      await session.send("Network.enable");
      let bytes = 0;
      session.on("Network.loadingFinished", (it) => (bytes += it.encodedDataLength));
      await fresh.goto(`${base}#token=fixture-token&${hash.slice(1)}`);
      await fresh.waitForSelector(ready);
      await fresh.waitForFunction(() => performance.getEntriesByName("trainyard.first-view").length > 0);
      const found = await fresh.evaluate(() => {
        const view = performance.getEntriesByName("trainyard.first-view")[0].startTime;
        const resources = performance.getEntriesByType("resource").filter((it) => it.startTime <= view);
        return { view, requests: resources.length + 1, names: resources.map((it) => it.name.replace(/.*\//, "").slice(0, 30)), paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime };
      });
      await fresh.waitForSelector("#live.live-live");
      await fresh.waitForTimeout(300);
      const long = await fresh.evaluate(() => window.__long);
      console.log(`${name}: first view ${Math.round(found.view)} ms, first paint ${Math.round(found.paint)} ms, ${found.requests} requests (${found.names.join(" ")}), ${bytes} bytes, long tasks ${long.map(Math.round).join(" ") || "none"}`);
      assert.ok(found.requests <= 8, found.names.join(" "));
      assert.ok(bytes <= 120_000, `${bytes} bytes`);
    } finally {
      await context.close();
    }
  });
}

/** A strip of 4,096 different rows of 2,000 columns. */
function wide() {
  const next = random(5);
  const rows = Array.from({ length: 4096 }, () => {
    const pairs = [];
    for (let left = 2000; left > 0; ) {
      const cells = Math.min(left, 1 + Math.floor(next() * 100));
      const state = next() < 0.8 ? 0 : Math.floor(next() * 15);
      if (pairs.at(-1) === state) pairs[pairs.length - 2] += cells;
      else pairs.push(cells, state);
      left -= cells;
    }
    return pairs;
  });
  const from = Date.UTC(2026, 10, 16, 6);
  return {
    version: 1, run: "x", from, to: from + 2000 * 97_200, columns: 2000, bucketMillis: 97_200, states: STATES, rows, of: rows.map((_, at) => at),
    labels: rows.map((_, at) => ({ from: at, to: at, pod: `Worker-${at}`, pods: 1, node: `gpu-${at >> 3}` })), job: rows[0], marks: Array.from({ length: 1000 }, (_, at) => ({ t: from + at * 190_000, kind: at % 3 ? "saved" : "failed", row: at * 4, n: 1 })), marksLeftOut: 0, exact: false, mixed: 1,
  };
}

test("frames_are_cheap_with_4096_ranks", async () => {
  const body = JSON.stringify(wide());
  await visit({ hash: "#/nodes" }, async (first, _, context) => {
    await first.waitForSelector("#not-here");
    const page = await context.newPage();
    await page.addInitScript(() => {
      window.__frames = [];
      window.__long = [];
      const original = window.requestAnimationFrame.bind(window);
      window.requestAnimationFrame = (callback) => original((time) => {
        const began = performance.now();
        callback(time);
        window.__frames.push(performance.now() - began);
      });
      new PerformanceObserver((list) => window.__long.push(...list.getEntries().map((it) => it.duration))).observe({ type: "longtask" });
    });
    await page.route("**/strip?*", (route) => route.fulfill({ contentType: "application/json", body }));
    await page.goto(`${first.url().replace(/#.*/, "")}#token=fixture-token&${BIG.slice(1)}`);
    await stripReady(page);
    await page.waitForSelector("#live.live-live");
    await page.waitForTimeout(500);
    const box = await page.locator("#strip-field").boundingBox();
    await page.mouse.move(box.x + 700, box.y + 200);
    await page.evaluate(() => (window.__frames.length = window.__long.length = 0));
    const session = await context.newCDPSession(page);
    // Processor time of the page's thread, which other work on the machine does not change.
    await session.send("Performance.enable", { timeDomain: "threadTicks" });
    const spent = async () => (await session.send("Performance.getMetrics")).metrics.find((it) => it.name === "ScriptDuration").value * 1000;
    const before = await spent();
    const begun = Date.now();
    const drawn = () => page.evaluate(() => window.__frames.length);
    // Six seconds; longer where a machine with much else to do has drawn few frames by then.
    for (let turn = 0; Date.now() < begun + 6000 || (Date.now() < begun + 60_000 && (await drawn()) <= 20); turn += 1) {
      if (turn % 40 < 20) await page.mouse.wheel(0, turn % 80 < 40 ? 120 : -120);
      else {
        await page.keyboard.down("Control");
        await page.mouse.wheel(0, turn % 40 < 30 ? -60 : 60);
        await page.keyboard.up("Control");
      }
    }
    const found = await page.evaluate(() => ({ frames: window.__frames, long: window.__long }));
    const mean = ((await spent()) - before) / found.frames.length;
    await session.send("HeapProfiler.collectGarbage");
    const { usedSize } = await session.send("Runtime.getHeapUsage");
    const p95 = percentile(found.frames, 0.95);
    console.log(`4,096 ranks: ${found.frames.length} frames, script median ${percentile(found.frames, 0.5).toFixed(1)} ms, p95 ${p95.toFixed(1)} ms (wall), all script ${mean.toFixed(1)} ms a frame (processor), most ${Math.max(...found.frames).toFixed(1)} ms; long tasks ${found.long.map(Math.round).join(" ") || "none"}; heap ${(usedSize / 1e6).toFixed(1)} MB`);
    await page.locator("#strip-field").screenshot({ path: join(shots, "strip-4096.png") });
    assert.ok(found.frames.length > 20, `${found.frames.length} frames`);
    assert.ok(usedSize <= 40e6, `heap ${usedSize} bytes`);
    // Twice the goal: a page that became much slower fails everywhere, and a slow machine does not. On a machine that does nothing else,
    // TRAINYARD_JUDGE=1 holds it to the goals.
    assert.ok(mean <= 8, `${mean} ms of the processor a frame`);
    if (process.env.TRAINYARD_JUDGE) {
      assert.ok(mean <= 4, `${mean} ms of the processor a frame`);
      assert.ok(p95 <= 4, `p95 ${p95} ms`);
      assert.ok(found.long.every((it) => it <= 100), `long tasks ${found.long}`);
    }
  });
});

test("strip_has_the_same_pixels_every_time", async () => {
  const draw = (theme) =>
    visit({ hash: JOB, theme }, async (page) => {
      await stripReady(page);
      await page.waitForSelector("#live.live-live");
      await page.mouse.move(2, 2);
      await page.waitForTimeout(200);
      writeFileSync(join(shots, `strip-${theme}.png`), await page.locator("#strip-field").screenshot());
      return page.evaluate(() => {
        const canvas = document.querySelector("#strip-field canvas");
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        const counts = {};
        for (let at = 0; at < data.length; at += 4) {
          const colour = ((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]).toString(16).padStart(6, "0");
          counts[colour] = (counts[colour] ?? 0) + 1;
        }
        let hash = 0;
        for (const byte of data) hash = (Math.imul(hash, 31) + byte) | 0;
        return { hash, counts, pixels: data.length / 4 };
      });
    });
  const [one, other, dark] = [await draw("light"), await draw("light"), await draw("dark")];
  assert.equal(one.hash, other.hash);
  assert.notEqual(one.hash, dark.hash);
  assert.ok(one.counts["0b6e4f"] > one.pixels / 2, "most of the strip trains");
  assert.ok(one.counts["b00020"] > 78 * 9, "78 failures are seen");
  assert.ok(dark.counts["3fb68b"] > dark.pixels / 2);
});
