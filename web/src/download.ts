/** Files to keep. A plain link cannot send the token, so the page reads the file and hands it to the browser. */
import { asProblem, ApiError, headers } from "./api";
import { show } from "./clipboard";

/** Largest file that is read into the page. */
const LARGEST = 256 << 20;

/** Saves what is at `url` under `name`. */
export async function download(url: string, name: string): Promise<void> {
  try {
    const answer = await fetch(url, { headers: headers(), credentials: "omit", cache: "no-store" });
    if (!answer.ok) throw new ApiError(answer.status, { code: "internal", message: `the server answered with status ${answer.status}`, hint: "retry" });
    if (Number(answer.headers.get("Content-Length") ?? 0) > LARGEST) throw new Error(`the file is larger than ${LARGEST >> 20} MiB`);
    const address = URL.createObjectURL(await answer.blob());
    const link = document.createElement("a");
    link.href = address;
    link.download = name.replace(/[^A-Za-z0-9._-]/g, "_");
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  } catch (error) {
    show(`The file was not saved: ${asProblem(error).message}`);
  }
}
