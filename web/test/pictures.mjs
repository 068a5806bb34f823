// Draws the pictures of the guide: real runs of the program in TRAINYARD_PROGRAM, its dashboard, and what Chromium shows of it.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { deflateSync } from "node:zlib";
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
  const full = await page.screenshot({ clip: { x: 0, y: 0, width: page.viewportSize().width, height: Math.ceil(y) } });
  const small = png(await page.evaluate(pixels, full.toString("base64")));
  console.log(`docs/${name}: ${small.length} bytes`);
  if (small.length > MOST) throw new Error(`docs/${name} has ${small.length} bytes, more than ${MOST}`);
  writeFileSync(join(root, "docs", name), small);
}

/** In the page: a picture as 256 colours, those that are most frequent, and for each pixel the number of the nearest. */
async function pixels(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
  context.drawImage(bitmap, 0, 0);
  const { data } = context.getImageData(0, 0, bitmap.width, bitmap.height);
  const at = (place) => (data[place] << 16) | (data[place + 1] << 8) | data[place + 2];
  const counts = new Map();
  for (let place = 0; place < data.length; place += 4) counts.set(at(place), (counts.get(at(place)) ?? 0) + 1);
  const colours = [...counts].sort((one, other) => other[1] - one[1]).slice(0, 256).map(([colour]) => colour);
  const far = (one, other) => [16, 8, 0].reduce((sum, by) => sum + (((one >> by) & 255) - ((other >> by) & 255)) ** 2, 0);
  const nearest = new Map();
  for (const colour of counts.keys()) nearest.set(colour, colours.reduce((best, it, number) => (far(it, colour) < far(colours[best], colour) ? number : best), 0));
  const numbers = Array.from({ length: data.length / 4 }, (_, pixel) => nearest.get(at(pixel * 4)));
  return { width: bitmap.width, height: bitmap.height, colours, numbers };
}

/** A PNG with a palette: a third of the bytes of one without. */
function png({ width, height, colours, numbers }) {
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  // 8 bits, numbers of a palette.
  head.set([8, 3], 8);
  const rows = Buffer.alloc((width + 1) * height);
  for (let row = 0; row < height; row += 1) rows.set(numbers.slice(row * width, (row + 1) * width), row * (width + 1) + 1);
  const palette = Buffer.from(colours.flatMap((colour) => [colour >> 16, (colour >> 8) & 255, colour & 255]));
  const parts = [["IHDR", head], ["PLTE", palette], ["IDAT", deflateSync(rows, { level: 9 })], ["IEND", Buffer.alloc(0)]];
  return Buffer.concat([Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]), ...parts.map(([name, data]) => part(name, data))]);
}

function part(name, data) {
  const named = Buffer.concat([Buffer.from(name), data]);
  const [length, check] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  check.writeUInt32BE(crc(named));
  return Buffer.concat([length, named, check]);
}

/** The checksum of PNG. */
function crc(bytes) {
  let sum = 0xffffffff;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit += 1) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return (sum ^ 0xffffffff) >>> 0;
}

let served;
let browser;
try {
  run(0, join(root, "examples/smoke/pytorchjob.yaml"), "--inject", "kill rank=2 at=step:200");
  run(0, join(root, "examples/smoke/jaxjob.yaml"), "--name", "eval");
  run(1, "--nproc", "8", "--name", "sft", "--restarts", "1", "--", "python3", file);
  served = await dashboard(program, folder);
  browser = await launch();
  const place = { base: served.url, token: served.token, width: 1100, height: 1400, deviceScaleFactor: 1.5 };
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
