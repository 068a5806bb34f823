// What all tests against the fixture share: one browser, and a server for each mode.
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { after } from "node:test";
import { serve } from "../fixture/server.mjs";
import { launch, open } from "./browser.mjs";

export const assets = join(dirname(fileURLToPath(import.meta.url)), "../../../crates/web/assets");
export const JOB = "#/job/research/pretrain-70b";
export const SMOKE = "#/job/team-a/smoke";
export const BIG = "#/job/team-a/big-4096";

export const browser = await launch();
const servers = new Map();

/** The server of a mode, started once. */
export async function server(mode = "data") {
  if (!servers.has(mode)) servers.set(mode, await serve({ assets, mode }));
  return servers.get(mode);
}

after(async () => {
  await browser.close();
  for (const it of servers.values()) await it.close();
});

/** Opens a page of the fixture, hands it to `use`, and closes it. */
export async function visit(options, use) {
  const { mode, ...more } = options;
  const it = await open(browser, { ...(await server(mode)), ...more });
  try {
    return await use(it.page, it.seen, it.context);
  } finally {
    await it.close();
  }
}

/** Waits until the strip is drawn. */
export function stripReady(page) {
  return page.waitForSelector('#strip-field[data-ready="yes"]');
}

/** A server and a page of one test alone; both are closed when it ends, however it ends. */
export async function own(t, { prefix, ...more } = {}) {
  const it = await serve({ assets, ...(prefix ? { prefix } : {}) });
  const opened = await open(browser, { ...it, ...more });
  t.after(async () => {
    await opened.close();
    await it.close();
  });
  return { it, ...opened };
}
