// The browser that tests drive.
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { chromium } from "playwright-core";

/** The program: `TRAINYARD_CHROMIUM`, else `chromium` on the path. */
export function executable() {
  if (process.env.TRAINYARD_CHROMIUM) return process.env.TRAINYARD_CHROMIUM;
  for (const folder of (process.env.PATH ?? "").split(delimiter)) {
    for (const name of ["chromium", "chromium-browser", "google-chrome"]) {
      try {
        accessSync(join(folder, name), constants.X_OK);
        return join(folder, name);
      } catch {
        // Not in this folder.
      }
    }
  }
  return undefined;
}

/** Starts it. The sandbox needs another user than root. */
export function launch() {
  const root = process.getuid?.() === 0;
  return chromium.launch({ executablePath: executable(), args: [...(root ? ["--no-sandbox"] : []), "--disable-dev-shm-usage"] });
}

/** A page with a token, that records what goes wrong on it. */
export async function open(browser, { base, token, hash = "#/jobs", theme = "light", width = 1440, height = 900, ...more }) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, timezoneId: "UTC", locale: "en-GB", reducedMotion: "reduce", ...more });
  const page = await context.newPage();
  const seen = { errors: [], requests: [] };
  page.on("console", (message) => {
    // A failed request is reported by the browser; those of tests for errors are expected.
    if (message.type() === "error" && !/Failed to load resource/.test(message.text())) seen.errors.push(message.text());
  });
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  page.on("request", (request) => seen.requests.push(request.url()));
  await page.goto(`${base}#token=${token}&${hash.slice(1)}`);
  return { context, page, seen, close: () => context.close() };
}
