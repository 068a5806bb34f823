// The real program: some runs in a folder of their own, and its dashboard.
import { spawn, spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A job of `ranks` ranks that run `script`, as a file in `folder`. */
export function jobFile(folder, name, ranks, script, backoffLimit = 3) {
  const path = join(folder, `${name}.json`);
  const container = { name: "pytorch", image: "none", command: ["sh", "-c", script] };
  const Worker = { replicas: ranks, restartPolicy: "OnFailure", template: { spec: { terminationGracePeriodSeconds: 5, containers: [container] } } };
  writeFileSync(path, JSON.stringify({ apiVersion: "kubeflow.org/v1", kind: "PyTorchJob", metadata: { name }, spec: { pytorchReplicaSpecs: { Worker }, runPolicy: { backoffLimit } } }));
  return path;
}

/** Runs, one that failed on hostile lines and one that was killed and restarted, and a dashboard of them. */
export async function start(program) {
  const folder = mkdtempSync(join(tmpdir(), "trainyard-page-"));
  const steps = (count) => `for i in $(seq 1 ${count}); do echo step $i loss 0.$i; sleep 0.1; done`;
  const hostile = String.raw`printf '<img src=x onerror=alert(1)> \033]8;;http://evil.example\033\\\\link \342\200\256\n'; echo "ValueError: no" >&2; exit 3`;
  const run = (file, ...more) => spawnSync(program, ["run", file, "--quiet", ...more], { cwd: folder, stdio: "ignore", timeout: 120_000 });
  run(jobFile(folder, "broken", 2, `${steps(3)}; ${hostile}`, 0));
  run(jobFile(folder, "killed", 2, steps(20)), "--inject", "kill rank=1 at=1s");
  const { url, token, end } = await dashboard(program, folder);
  const stop = async () => {
    await end();
    rmSync(folder, { recursive: true, force: true });
  };
  return { folder, url: `${url}#token=${token}`, stop };
}

/** A dashboard of the runs in `folder`; `end` ends it and waits for that. */
export async function dashboard(program, folder, ...more) {
  const child = spawn(program, ["dashboard", "--format", "json", ...more], { cwd: folder, stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((done) => child.on("exit", done));
  let text = "";
  for await (const part of child.stdout) {
    text += part;
    if (text.trimEnd().endsWith("}")) break;
  }
  const { url, token } = JSON.parse(text);
  const end = async () => {
    child.kill("SIGTERM");
    await ended;
  };
  return { url, token, end };
}

/** Stores the last run of `job` again under other names, as if each were a job that ran. */
export function copies(folder, job, names) {
  const runs = join(folder, ".trainyard/runs");
  const run = readdirSync(join(runs, job), { withFileTypes: true }).findLast((it) => it.isDirectory()).name;
  for (const name of names) {
    const to = join(runs, name, run);
    cpSync(join(runs, job, run), to, { recursive: true });
    for (const file of ["job.json", "report.json", "status.json"]) {
      const path = join(to, file);
      writeFileSync(path, readFileSync(path, "utf8").replaceAll(`"name": "${job}"`, `"name": "${name}"`));
    }
  }
}
