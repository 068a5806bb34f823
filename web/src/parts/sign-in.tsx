/** The page of a reader without a token. */
import { useState } from "preact/hooks";
import { advice, isToken, keep } from "../auth";
import { Sentence } from "./basics";
import { capital } from "../words";

/** Asks for the token. */
export function SignIn() {
  const [value, set] = useState("");
  const [wrong, setWrong] = useState(false);
  return (
    <section class="panel narrow">
      <h1>A token is needed</h1>
      <p>
        This page has no token, or the server refused it. <code>trainyard dashboard</code> prints an address that contains the token: open that address, or
        paste the token here. A new start of the program makes a new token. In a cluster, paste a token of the cluster.
      </p>
      {advice.value && (
        <p id="token-advice">
          <Sentence text={`${capital(advice.value)}.`} />
        </p>
      )}
      <form
        class="bar"
        onSubmit={(event) => {
          event.preventDefault();
          const token = value.trim().replace(/^.*#token=/, "");
          if (isToken(token)) keep(token);
          else setWrong(true);
        }}
      >
        <label>
          Token{" "}
          <input type="password" autocomplete="off" value={value} aria-describedby={wrong ? "token-wrong" : undefined} onInput={(event) => set(event.currentTarget.value)} />
        </label>
        <button type="submit">use this token</button>
      </form>
      {wrong && (
        <p id="token-wrong" role="alert">
          That text is no token: copy all that follows <code>#token=</code> in the address, or all that <code>kubectl create token</code> prints.
        </p>
      )}
    </section>
  );
}
