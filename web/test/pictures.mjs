// Draws the pictures of the guide: real runs of the program in TRAINYARD_PROGRAM, its dashboard, and what Chromium shows of it.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { executable, launch, open } from "./browser/browser.mjs";
import { dashboard } from "./browser/program.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
/** Most bytes of a picture. */
const MOST = 150_000;
/** A program whose ranks all fail at the same line. */
const TRAIN = `import os, time

def rate(config):
    return config["rate"]

for step in range(1, 41):
    if os.environ["RANK"] == "0":
        print(f"step {step}/400 loss {2.5 / step ** 0.4:.4f}", flush=True)
    time.sleep(0.1)
rate({})
`;

const program = process.env.TRAINYARD_PROGRAM;
if (!program || !executable()) {
  console.error("could not run: set TRAINYARD_PROGRAM to the program, and TRAINYARD_CHROMIUM to Chromium where it is not on the path");
  process.exit(3);
}
const folder = mkdtempSync(join(tmpdir(), "runs-"));
const file = join(folder, "train.py");
writeFileSync(file, TRAIN);

/** Runs a job to its end; `expected` is its exit code. */
function run(expected, ...words) {
  const { status, stderr } = spawnSync(program, ["run", "--quiet", ...words], { cwd: folder, stdio: ["ignore", "ignore", "pipe"], encoding: "utf8", timeout: 180_000 });
  if (status !== expected) throw new Error(`\`trainyard run ${words.join(" ")}\` ended with ${status}, not ${expected}: ${stderr}`);
}

/** Writes what is above `below` on the page, and refuses a picture that is too large. */
async function picture(page, name, below) {
  const { y } = await page.locator(below).boundingBox();
  const path = join(root, "docs", name);
  await page.screenshot({ path, clip: { x: 0, y: 0, width: page.viewportSize().width, height: Math.ceil(y) } });
  const { size } = statSync(path);
  console.log(`docs/${name}: ${size} bytes`);
  if (size > MOST) throw new Error(`docs/${name} has ${size} bytes, more than ${MOST}`);
}

let served;
let browser;
try {
  run(0, join(root, "examples/smoke/pytorchjob.yaml"), "--inject", "kill rank=2 at=step:200");
  run(0, join(root, "examples/smoke/jaxjob.yaml"), "--name", "eval");
  run(1, "--nproc", "8", "--name", "sft", "--restarts", "1", "--", "python3", file);
  served = await dashboard(program, folder);
  browser = await launch();
  const place = { base: served.url, token: served.token, width: 1200, height: 1400, deviceScaleFactor: 1.25 };
  const jobs = await open(browser, place);
  await jobs.page.waitForSelector("#jobs");
  await jobs.page.waitForSelector("#live.live-live");
  await picture(jobs.page, "dashboard-jobs.png", "footer");
  await jobs.close();
  const job = await open(browser, { ...place, hash: "#/job/default/smoke" });
  await job.page.waitForSelector('#strip-field[data-ready="yes"]');
  await job.page.waitForSelector("#live.live-live");
  for (const part of ["#verdict", "#phases"]) await job.page.waitForSelector(part);
  await picture(job.page, "dashboard-job.png", '[role="tablist"]');
  await job.close();
} finally {
  await browser?.close();
  await served?.end();
  rmSync(folder, { recursive: true, force: true });
}
