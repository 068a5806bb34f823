// Builds the page: `crates/web/assets/{index.html,app.js,app.css,favicon.svg,SOURCES}`. The same sources give the same bytes.
//
// `--out DIR` writes elsewhere; `--check` writes nothing and fails where the stored files differ from what would be built.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync, existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const argument = (name) => {
  const at = process.argv.indexOf(name);
  return at < 0 ? undefined : process.argv[at + 1];
};
const out = argument("--out") ?? join(here, "../crates/web/assets");
const check = process.argv.includes("--check");

/** The licence texts of the packages that are in the bundle, in the order of their names. */
function notices() {
  const packages = ["@preact/signals", "@preact/signals-core", "preact", "uplot"];
  const texts = packages.map((name) => {
    const folder = join(here, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = ["LICENSE", "LICENSE.md", "LICENSE.txt"].map((it) => join(folder, it)).find(existsSync);
    const text = file ? readFileSync(file, "utf8").trim() : `License: ${license}`;
    return `${name} ${version}\n\n${text.replaceAll("*/", "* /")}`;
  });
  return `/*! Packages in this file and their licences:\n\n${texts.join("\n\n----\n\n")}\n*/\n`;
}

/** All files below `folder`, as paths relative to `web/` with `/`. */
function below(folder) {
  return readdirSync(join(here, folder), { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? below(`${folder}/${entry.name}`) : [`${folder}/${entry.name}`],
  );
}

/** The hash of the sources. The rule is in README.md; a tool without Node computes it too. */
function sourcesHash() {
  const paths = [...below("src"), "build.mjs", "package-lock.json"];
  paths.sort((one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other)));
  let hash = 0xcbf29ce484222325n;
  const add = (bytes) => {
    for (const byte of bytes) hash = ((hash ^ BigInt(byte)) * 0x100000001b3n) & 0xffffffffffffffffn;
  };
  for (const path of paths) {
    add(Buffer.from(path, "utf8"));
    add([0]);
    add(readFileSync(join(here, path)));
    add([0]);
  }
  return hash.toString(16).padStart(16, "0");
}

const result = await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx" },
  bundle: true,
  minify: true,
  format: "iife",
  target: ["es2022", "chrome109", "firefox115", "safari16.4"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  charset: "utf8",
  outdir: "out",
  write: false,
  logLevel: "warning",
});
const text = (end) => result.outputFiles.find((file) => file.path.endsWith(end)).text;
const js = `${text(".js")}${notices()}`;
const css = text(".css");
const short = (content) => createHash("sha256").update(content).digest("hex").slice(0, 12);
const html = readFileSync(join(here, "src/index.html"), "utf8")
  .replace("app.js", `app.js?v=${short(js)}`)
  .replace("app.css", `app.css?v=${short(css)}`);
const files = {
  "index.html": html,
  "app.js": js,
  "app.css": css,
  "favicon.svg": readFileSync(join(here, "src/favicon.svg"), "utf8"),
  SOURCES: `fnv1a64 ${sourcesHash()}\n`,
};
const size = (content) => `${content.length} bytes, ${gzipSync(content, { level: 9 }).length} gzipped`;
if (check) {
  const different = Object.entries(files).filter(([name, content]) => {
    const path = join(out, name);
    return !existsSync(path) || readFileSync(path, "utf8") !== content;
  });
  if (different.length > 0) {
    console.error(`these files are not what the sources build: ${different.map(([name]) => name).join(", ")}; run \`npm run build\` in web/`);
    process.exit(1);
  }
} else {
  mkdirSync(out, { recursive: true });
  for (const [name, content] of Object.entries(files)) writeFileSync(join(out, name), content);
}
console.log(`app.js: ${size(js)}\napp.css: ${size(css)}\nSOURCES: ${files.SOURCES.trim()}`);
