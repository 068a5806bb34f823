// Runs the browser tests: `fixture` against the server of test/fixture, `real` against the program at TRAINYARD_URL.
import { spawnSync } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { executable } from "./browser/browser.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const kind = process.argv[2] ?? "fixture";
if (!executable()) {
  console.error("could not run: no Chromium was found; set TRAINYARD_CHROMIUM or install `chromium`");
  process.exit(3);
}
if (kind === "real" && !process.env.TRAINYARD_URL) {
  console.error("could not run: set TRAINYARD_URL to the address that `trainyard dashboard` prints, with its token");
  process.exit(3);
}
const files = kind === "real" ? ["real"] : ["pages", "use", "budgets"];
const only = process.argv[3] ? [`--test-name-pattern=${process.argv[3]}`] : [];
const { status } = spawnSync(process.execPath, ["--test", "--test-concurrency=1", ...only, ...files.map((name) => join(here, `browser/${name}.test.mjs`))], { stdio: "inherit" });
process.exit(status ?? 1);
