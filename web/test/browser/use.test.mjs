// How the page is used: by keyboard, with hostile data, with a stream that is cut, under a prefix.
import assert from "node:assert/strict";
import { test } from "node:test";
import { JOB, own, server, SMOKE, stripReady, visit } from "./fixture.mjs";

const hash = (page) => page.evaluate(() => location.hash);

test("keyboard_walks_from_jobs_to_logs", async () => {
  await visit({}, async (page) => {
    await page.waitForSelector("#jobs");
    await page.keyboard.press("j");
    await page.keyboard.press("j");
    await page.keyboard.press("k");
    await page.keyboard.press("Enter");
    await stripReady(page);
    assert.equal(await hash(page), JOB);
    // To the strip with the tabulator, as any reader would.
    for (let press = 0; press < 40; press += 1) {
      await page.keyboard.press("Tab");
      if (await page.evaluate(() => document.activeElement?.id === "strip-field")) break;
    }
    assert.equal(await page.evaluate(() => document.activeElement?.id), "strip-field");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowDown");
    await page.waitForFunction(() => /^rank 0-7 on gpu-000: /.test(document.getElementById("announcement").textContent));
    await page.keyboard.press("w");
    await page.keyboard.press("w");
    await page.waitForFunction(() => /from=\d+/.test(location.hash));
    await page.keyboard.press("a");
    await page.keyboard.press("0");
    await page.waitForFunction(() => !/from=/.test(location.hash));
    await page.keyboard.press("n");
    await page.waitForFunction(() => /attempt|failure/.test(document.getElementById("announcement").textContent));
    await page.keyboard.press("l");
    await page.waitForFunction(() => /tab=logs/.test(location.hash) && document.activeElement?.id === "tab-logs");
    await page.waitForSelector("#log-list .log-line, #groups");
    await page.keyboard.press("[");
    await page.waitForFunction(() => /att=\d+/.test(location.hash));
    await page.keyboard.press("g");
    await page.keyboard.press("f");
    await page.waitForSelector("#failures");
  });
});

test("every_key_of_the_help_works", async () => {
  await visit({}, async (page) => {
    const press = (...keys) => keys.reduce((before, key) => before.then(() => page.keyboard.press(key)), Promise.resolve());
    const at = (pattern) => page.waitForFunction((text) => new RegExp(text).test(location.hash), pattern);
    await page.waitForSelector("#jobs");
    for (const [letter, name] of [["n", "nodes"], ["q", "queue"], ["f", "failures"], ["j", "jobs"]]) {
      await press("g", letter);
      await at(`^#/${name}$`);
    }
    await page.waitForSelector("#jobs");
    // A key that opens a row does nothing where no row has the focus.
    await page.focus("text=keys");
    await press("o");
    assert.equal(await page.$("dialog[open]"), null);
    await press("ArrowDown", "ArrowDown", "ArrowUp", "o");
    await stripReady(page);
    assert.equal(await hash(page), JOB);
    await press("[");
    await at("att=78");
    await press("]");
    await at("att=79");
    await page.focus("#strip-field");
    const said = (pattern) => page.waitForFunction((text) => new RegExp(text).test(document.getElementById("announcement").textContent), pattern);
    await press("End", "p");
    await said("^(failure|pod|attempt)");
    await press("Home", "PageDown", "PageUp", "+", "=", "w", "d", "-", "s", "Shift+ArrowRight");
    await at("from=\\d+");
    await press("0");
    await page.waitForFunction(() => !/from=/.test(location.hash));
    await press("ArrowRight");
    await said("training|queued");
    // The first Esc removes the cursor, the second goes back.
    await press("Escape");
    await page.waitForFunction(() => / to /.test(document.getElementById("strip-readout").textContent));
    await press("n", "Enter");
    await page.waitForFunction(() => /tab=logs/.test(location.hash) && document.activeElement?.id === "tab-logs");
    await press("ArrowRight");
    await at("tab=seats");
    await press("?");
    await page.waitForSelector("dialog[open] .keys");
    await press("Escape");
    await page.waitForSelector("dialog[open]", { state: "detached" });
    await press("Escape");
    await at("^#/jobs$");
  });
});

test("go_to_opens_a_job_by_name", async () => {
  await visit({ hash: "#/nodes" }, async (page) => {
    await page.waitForSelector("#not-here");
    await page.keyboard.press("Control+k");
    await page.keyboard.type("smoke");
    await page.waitForFunction(() => document.querySelectorAll("#goto-list li").length === 1);
    await page.keyboard.press("Enter");
    await stripReady(page);
    assert.equal(await hash(page), SMOKE);
  });
});

test("filter_theme_and_copy_work_by_keys", async () => {
  await visit({ permissions: ["clipboard-read", "clipboard-write"] }, async (page) => {
    await page.waitForSelector("#jobs");
    await page.keyboard.press("/");
    await page.keyboard.type("smoke");
    await page.waitForFunction(() => document.querySelectorAll("#jobs tbody").length === 1 && /q=smoke/.test(location.hash));
    await page.keyboard.press("Escape");
    await page.keyboard.press("t");
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
    await page.keyboard.press("c");
    await page.waitForSelector(".note");
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "trainyard ps");
    await page.keyboard.press("y");
    await page.waitForFunction(() => /Copied the link/.test(document.querySelector(".note")?.textContent));
    assert.match(await page.evaluate(() => navigator.clipboard.readText()), /#\/jobs\?q=smoke$/);
  });
});

test("token_leaves_the_address_at_once", async () => {
  const it = await server();
  const before = it.requests.length;
  await visit({ hash: SMOKE }, async (page) => {
    await stripReady(page);
    assert.equal(await hash(page), SMOKE);
    assert.equal(await page.evaluate(() => history.length), 2, "one step for the blank page, one for this");
    const asked = it.requests.slice(before);
    assert.ok(asked.every((request) => request.referer === undefined && !JSON.stringify(request).includes("fixture-token")));
    assert.equal(await page.evaluate(() => document.cookie), "");
    await page.reload();
    await stripReady(page);
  });
});

test("one_time_code_becomes_a_token", async (t) => {
  const { it, page } = await own(t, { token: "wrong" });
  await page.waitForSelector("text=A token is needed");
  await page.goto("about:blank");
  await page.goto(`${it.base}#code=one-time-code`);
  await page.waitForSelector("#jobs");
  assert.equal(await hash(page), "#/jobs");
});

test("hostile_text_stays_text", async () => {
  for (const place of ["#/jobs", `${SMOKE}?tab=logs`, `${SMOKE}?tab=logs&view=lines&rank=0&offset=0`]) {
    await visit({ hash: place }, async (page, seen) => {
      await page.waitForFunction(() => document.body.textContent.includes("<img src=x onerror="));
      const found = await page.evaluate(() => ({
        title: document.title,
        images: document.querySelectorAll("img, iframe, object, embed").length,
        scripts: document.querySelectorAll("script").length,
        foreign: [...document.querySelectorAll("a")].filter((it) => it.origin !== location.origin).length,
        raw: /[\u001b\u202e\u200b\u0007]/.test(document.body.textContent),
      }));
      assert.deepEqual(found, { title: found.title, images: 0, scripts: 1, foreign: 0, raw: false });
      assert.match(found.title, /Trainyard$/);
      assert.deepEqual(seen.errors, []);
    });
  }
  await visit({ hash: `${SMOKE}?tab=logs&view=lines&rank=0&offset=0` }, async (page) => {
    await page.waitForSelector("#log-list .a-c-red");
    assert.equal(await page.textContent("#log-list .a-c-red"), "red");
    assert.ok((await page.textContent("#log-list")).includes("U+202E"));
  });
});

test("no_request_leaves_the_origin", async () => {
  const { base } = await server();
  await visit({ hash: "#/jobs" }, async (page, seen) => {
    await page.waitForSelector("#jobs");
    for (const place of [JOB, ...["logs", "seats", "metrics", "checkpoints", "events", "spec"].map((tab) => `${SMOKE}?tab=${tab}`), "#/nodes", "#/queue", "#/failures"]) {
      await page.evaluate((it) => (location.hash = it), place);
      await page.waitForSelector("#strip-field[data-ready=yes], #not-here, #failures");
      await page.waitForFunction(() => !document.querySelector(".bone"));
    }
    assert.deepEqual(seen.requests.filter((url) => !url.startsWith(base)), []);
    assert.deepEqual(seen.errors, []);
  });
});

test("cut_stream_shows_its_age_and_resumes", async (t) => {
  const { it, page } = await own(t);
  await page.waitForSelector("#live.live-live");
  const row = { ...(await page.evaluate(async () => (await (await fetch("api/v1/jobs", { headers: { Authorization: "Bearer fixture-token" } })).json()).rows[0])) };
  const asked = () => it.requests.filter((request) => request.path === "api/v1/jobs").length;
  const before = asked();
  it.emit("job", { row });
  // The page has read the event once it asks for the list again.
  while (asked() === before) await page.waitForFunction(() => true);
  it.cut(true);
  await page.waitForSelector("#stale");
  assert.match(await page.textContent("#stale"), /As of \d\d:\d\d:\d\d: the live stream is down\.\s*The data is \d+ s old/);
  await page.waitForSelector("#live.live-polling", { timeout: 60_000 });
  it.cut(false);
  await page.click("text=reconnect now");
  await page.waitForSelector("#live.live-live");
  await page.waitForSelector("#stale", { state: "detached" });
  const last = it.requests.filter((request) => request.path === "api/v1/stream").at(-1);
  assert.match(last.query, /since=1/);
});

test("change_of_a_run_is_shown_without_reload", async (t) => {
  const { it, page } = await own(t, { hash: SMOKE });
  await stripReady(page);
  await page.waitForSelector("#live.live-live");
  const asked = () => it.requests.filter((request) => request.path.endsWith("/strip")).length;
  const before = asked();
  it.emit("run", { run: "20261118T090000Z", changed: ["strip"] });
  while (asked() === before) await page.waitForFunction(() => true);
  it.emit("job", { row: { id: "20261118T090000Z", job: "smoke", namespace: "team-a", kind: "PyTorchJob", state: "running", attempt: 4, live: true } });
  await page.waitForSelector(".job-head .state:has-text('Running')");
});

test("hidden_tab_closes_its_stream", async (t) => {
  const { it, page } = await own(t);
  await page.waitForSelector("#live.live-live");
  const hide = (hidden) => page.evaluate((value) => {
    Object.defineProperty(document, "hidden", { value, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  await hide(true);
  while (it.streams.size > 0) await page.waitForFunction(() => true);
  await hide(false);
  while (it.streams.size === 0) await page.waitForFunction(() => true);
  assert.equal(await page.$("#stale"), null);
});

test("page_works_below_a_prefix", async (t) => {
  const { it, page, seen } = await own(t, { prefix: "/ml/yard/", hash: `${SMOKE}?tab=events` });
  await page.waitForSelector("#events li");
  assert.ok(seen.requests.every((url) => url.startsWith(it.base)));
});

test("first_failure_is_on_top_and_groups_unfold", async () => {
  await visit({ hash: `${SMOKE}?tab=logs` }, async (page) => {
    await page.waitForSelector("#first-failure");
    // The exception is behind the line that is known as the first.
    await page.waitForSelector("#first-failure >> text=KeyError: 'rate'");
    assert.match(await page.textContent("#first-failure"), /First failure: rank 24[\s\S]*step 4000[\s\S]*Traceback[\s\S]*KeyError: 'rate'/);
    assert.match(await page.getAttribute("#first-failure a", "href"), /offset=\d+&rank=24/);
    const row = page.locator(".group-head", { hasText: "Traceback" });
    assert.match(await row.textContent(), /× 128\s*ranks 0-127/);
    await row.click();
    assert.ok((await page.locator(".rank-links a").count()) >= 64);
    await page.click("text=open the first of them in its log");
    await page.waitForSelector("#log-list .selected");
    assert.match(await page.textContent("#log-list .selected"), /Traceback/);
  });
});

test("evidence_links_to_its_line", async () => {
  await visit({ hash: SMOKE }, async (page) => {
    await page.click("text=rank 24, line 4002 in the log");
    await page.waitForSelector("#log-list .selected");
    assert.match(await page.textContent("#log-list .selected"), /Traceback/);
    assert.match(await hash(page), /line=4002/);
  });
});

test("link_is_followed_although_the_page_changes_its_address", async () => {
  await visit({ hash: SMOKE }, async (page) => {
    await page.waitForSelector("#tab-events");
    const link = await page.getAttribute("a:has-text('rank 24, line 4002')", "href");
    // In one task, so that the event of the link has not arrived yet: as the strip writes its window.
    const follow = (to) =>
      page.evaluate((to) => {
        location.hash = to;
        document.getElementById("tab-events").click();
      }, to);
    await follow(link);
    await page.waitForSelector("#tab-events[aria-selected=true]");
    assert.match(await hash(page), /line=4002.*tab=events/);
    await follow("#/jobs");
    await page.waitForSelector("#jobs");
    assert.equal(await hash(page), "#/jobs");
  });
});

test("search_counts_and_links_open_the_same_line", async () => {
  await visit({ hash: `${SMOKE}?tab=logs&view=lines&rank=0&find=step+39` }, async (page) => {
    await page.waitForSelector("#hits");
    assert.equal((await page.textContent("#hits")).trim(), "111 lines match");
    await page.click("#log-list .log-line >> nth=4");
    await page.click("text=show it among its neighbours");
    await page.waitForFunction(() => /offset=/.test(location.hash) && document.querySelector("#log-list .selected"));
    const [link, line] = [await hash(page), await page.textContent("#log-list .selected")];
    await visit({ hash: link }, async (other) => {
      await other.waitForSelector("#log-list .selected");
      assert.equal(await other.textContent("#log-list .selected"), line);
    });
  });
});

test("long_log_is_loaded_as_it_is_scrolled", async () => {
  await visit({ hash: `${JOB}?tab=logs&view=lines&rank=0` }, async (page) => {
    await page.waitForSelector("#log-list .log-line");
    assert.ok((await page.locator("#log-list .log-line").count()) < 80);
    // To the top again and again: each time, the lines before are loaded and the list grows above.
    await page.waitForFunction(() => {
      const list = document.getElementById("log-list");
      list.scrollTop = 0;
      return list.textContent.includes("starting attempt");
    });
  });
});

test("zoom_shows_exact_spans", async () => {
  await visit({ hash: JOB }, async (page) => {
    await stripReady(page);
    await page.click("text=1 min");
    await page.waitForSelector("text=Exact spans.");
    assert.match(await hash(page), /from=\d+&to=\d+/);
    await page.reload();
    await page.waitForSelector("text=Exact spans.");
  });
});

test("search_key_opens_the_logs", async () => {
  await visit({ hash: `${SMOKE}?tab=spec` }, async (page) => {
    await page.waitForSelector(".raw");
    await page.keyboard.press("/");
    await page.waitForFunction(() => document.activeElement?.getAttribute("aria-label") === "Search lines");
    await page.keyboard.type("KeyError");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#hits");
    assert.match(await hash(page), /find=KeyError.*tab=logs/);
  });
});

test("one_failed_rank_is_seen_at_every_zoom", async () => {
  await visit({ hash: JOB }, async (page) => {
    await stripReady(page);
    await page.focus("#strip-field");
    await page.keyboard.press("n");
    await page.waitForFunction(() => /^failure in attempt/.test(document.getElementById("announcement").textContent));
    for (const window of ["7 d", "24 h", "1 h", "1 min"]) {
      await page.click(`#strip >> text="${window}"`);
      await page.waitForFunction(() => {
        const canvas = document.querySelector("#strip-field canvas");
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        for (let at = 0; at < data.length; at += 4) if (data[at] === 0xb0 && data[at + 1] === 0 && data[at + 2] === 0x20) return true;
        return false;
      });
    }
  });
});

test("trace_is_saved_as_a_file", async () => {
  await visit({ hash: SMOKE, acceptDownloads: true }, async (page, seen) => {
    await stripReady(page);
    const [file] = await Promise.all([page.waitForEvent("download"), page.click("text=save as Chrome trace")]);
    assert.equal(file.suggestedFilename(), "20261118T090000Z.trace.json");
    assert.deepEqual(seen.errors, []);
  });
});

const tally = (total, free) => ({ total, free, held: total - free, foreign: 0, out: 0 });

test("nodes_of_a_cluster_are_a_table", async () => {
  const host = (name, state) => ({ name, state, accelerators: tally(8, state ? 0 : 8), cpu: [1, 2], holders: [{ gang: "team-a/sft", accelerators: 8 }] });
  const rack = (name, hosts) => ({ level: "rack", name, nodes: hosts.length, accelerators: tally(16, 8), areas: [], hosts });
  const cluster = { level: "cluster", name: null, nodes: 3, accelerators: tally(24, 16), hosts: [], areas: [rack("r1", [host("gpu-0", null), host("gpu-1", "cordoned")]), rack(null, [host("<b>gpu-2</b>", null)])] };
  for (const width of [1280, 320]) {
    await visit({ hash: "#/queue", width }, async (page, seen) => {
      await page.waitForSelector("#not-here");
      await page.route("**/api/v1/nodes", (route) => route.fulfill({ contentType: "application/json", body: JSON.stringify({ version: 1, levels: [], cluster, warnings: ["`r1` has 2 nodes"] }) }));
      await page.keyboard.press("g");
      await page.keyboard.press("n");
      await page.waitForSelector("#nodes");
      const rows = await page.$$eval("#nodes tbody tr", (all) => all.map((row) => row.textContent));
      assert.match(rows[0], /^r1 › gpu-1.*cordoned$/);
      assert.match(rows[2], /^no rack › <b>gpu-2<.b>88/);
      assert.match(await page.textContent("main"), /3 nodes, 24 GPUs: 16 free, 8 held by jobs/);
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0);
      assert.deepEqual(seen.errors, []);
    });
  }
});

test("queue_of_a_cluster_has_reasons", async () => {
  const rows = [{ id: "1", job: "sweep", namespace: "team-b", createdAt: "2026-11-18T11:00:00Z", pods: 4, accelerators: 32, reason: "needs 4 nodes with 8 free GPUs in one rack; `r1` has 3", queue: "team-b" }];
  await visit({ hash: "#/nodes" }, async (page, seen) => {
    await page.waitForSelector("#not-here");
    await page.route("**/api/v1/queue", (route) => route.fulfill({ contentType: "application/json", body: JSON.stringify({ version: 1, rows, rowsLeftOut: 2, unreadable: [] }) }));
    await page.keyboard.press("g");
    await page.keyboard.press("q");
    await page.waitForSelector("#queue");
    assert.match(await page.textContent("main"), /sweep team-b432team-b.*needs 4 nodes with 8 free GPUs in one rack; r1 has 3.*2 more jobs not shown/);
    assert.equal(await page.getAttribute("#queue a", "href"), "#/job/team-b/sweep");
    assert.deepEqual(seen.errors, []);
  });
});
