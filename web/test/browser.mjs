// Runs the browser tests: `fixture` against the server of test/fixture, `real` against the program: TRAINYARD_PROGRAM, which is started with runs of its
// own, or a dashboard that runs already, at TRAINYARD_URL.
import { spawnSync } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { executable } from "./browser/browser.mjs";
import { start } from "./browser/program.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const kind = process.argv[2] ?? "fixture";
if (!executable()) {
  console.error("could not run: no Chromium was found; set TRAINYARD_CHROMIUM or install `chromium`");
  process.exit(3);
}
const { TRAINYARD_PROGRAM: program, TRAINYARD_URL: url } = process.env;
if (kind === "real" && !program && !url) {
  console.error("could not run: set TRAINYARD_PROGRAM to the program, or TRAINYARD_URL to the address that `trainyard dashboard` prints, with its token");
  process.exit(3);
}
const started = kind === "real" && !url ? await start(program) : undefined;
const files = kind !== "real" ? ["pages", "use", "budgets"] : started ? ["real", "live", "serve"] : ["real"];
const env = { ...process.env, ...(started && { TRAINYARD_URL: started.url, TRAINYARD_FOLDER: started.folder }) };
const only = process.argv[3] ? [`--test-name-pattern=${process.argv[3]}`] : [];
const { status } = spawnSync(process.execPath, ["--test", "--test-concurrency=1", ...only, ...files.map((name) => join(here, `browser/${name}.test.mjs`))], { stdio: "inherit", env });
await started?.stop();
process.exit(status ?? 1);
