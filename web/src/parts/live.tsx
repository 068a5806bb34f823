/** How old the data is. */
import { useEffect, useState } from "preact/hooks";
import { reachable } from "../api";
import { refused } from "../auth";
import { live, reconnect } from "../stream";
import { clock, duration, utc } from "../words";

/** Counts seconds while it is shown. */
export function useNow(every: number): number {
  const [now, set] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => set(Date.now()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

/** One word in the header. */
export function LiveWord() {
  const { state } = live.value;
  // Without a token nothing is loading.
  if (refused.value) return null;
  const words = { off: "loading", connecting: "connecting", live: "live", down: "not live", polling: reachable.value ? "polling" : "not responding" };
  return (
    <span class={`live live-${state}`} id="live">
      <span class="dot" aria-hidden="true" /> {words[state]}
    </span>
  );
}

/** The banner while the stream is down. */
export function Banner() {
  const { state } = live.value;
  return state === "down" || state === "polling" ? <Stale /> : null;
}

/** A stream that resumes at once is not worth a banner. */
const PATIENCE = 1500;

function Stale() {
  const now = useNow(500);
  const { state, since, at } = live.value;
  if (state === "down" && now - at < PATIENCE) return null;
  const seconds = Math.max(1, Math.floor((now - since) / 1000));
  const age = seconds < 120 ? `${seconds} s` : duration(seconds * 1000);
  return (
    <div class="banner" id="stale">
      <span role="status">
        {reachable.value ? (
          `As of ${clock(since)}: the live stream is down.`
        ) : (
          <>
            <strong>The dashboard is not responding.</strong> Check that <code>trainyard dashboard</code> is running.
          </>
        )}
      </span>
      <span class="number" title={utc(since)}>
        The data is {age} old{state === "polling" ? "; the page asks again every 10 s" : "; the page reconnects by itself"}.
      </span>
      <button type="button" onClick={reconnect}>
        reconnect now
      </button>
    </div>
  );
}
