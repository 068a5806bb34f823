// Unit tests: bundles them and runs them with the test runner of Node.
import { spawnSync } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "../.tmp/unit");
rmSync(out, { recursive: true, force: true });
const files = readdirSync(join(here, "unit")).filter((name) => name.endsWith(".test.ts"));
await build({ entryPoints: files.map((name) => join(here, "unit", name)), outdir: out, bundle: true, platform: "node", format: "esm", outExtension: { ".js": ".mjs" }, logLevel: "warning" });
const { status } = spawnSync(process.execPath, ["--test", ...files.map((name) => join(out, name.replace(".ts", ".mjs")))], { stdio: "inherit", env: { ...process.env, TZ: "UTC" } });
process.exit(status ?? 1);
