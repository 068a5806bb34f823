/** The tabs of a job. */
import { useEffect, useRef, useState } from "preact/hooks";
import { route, setQuery } from "../route";
import type { Row } from "../types";
import { CheckpointsTab, EventsTab, SpecTab } from "./lists";
import { LogsTab } from "./logs";
import { MetricsTab } from "./metrics";
import { SeatsTab } from "./seats";

const TABS: [string, string][] = [
  ["logs", "Logs"],
  ["seats", "Seats"],
  ["metrics", "Metrics"],
  ["checkpoints", "Checkpoints"],
  ["events", "Events"],
  ["spec", "Spec"],
];

/** Brings the tabs into view, with the focus on the chosen one. */
export function showTabs(): void {
  setTimeout(() => {
    const tab = document.querySelector<HTMLElement>('[role="tab"][aria-selected="true"]');
    tab?.focus({ preventScroll: true });
    tab?.scrollIntoView({ block: "start" });
  }, 30);
}

/** The chosen tab. Its data is asked for when it comes into view, unless the address names it. */
export function Tabs({ run, row }: { run: string; row: Row | undefined }) {
  const asked = route.value.query.tab;
  const tab = TABS.some(([id]) => id === asked) ? (asked as string) : "logs";
  const panel = useRef<HTMLDivElement>(null);
  const [near, setNear] = useState(asked !== undefined);
  useEffect(() => {
    if (asked !== undefined) setNear(true);
  }, [asked]);
  useEffect(() => {
    if (near || !panel.current) return;
    const observer = new IntersectionObserver((entries) => entries.some((it) => it.isIntersecting) && setNear(true), { rootMargin: "400px" });
    // After the first view: what is above is asked for first.
    const timer = setTimeout(() => panel.current && observer.observe(panel.current), 100);
    return () => {
      clearTimeout(timer);
      observer.disconnect();
    };
  }, [near]);
  const choose = (id: string) => {
    setNear(true);
    setQuery({ tab: id });
  };
  const onKey = (event: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by === undefined) return;
    const at = TABS.findIndex(([id]) => id === tab);
    const next = TABS[(at + by + TABS.length) % TABS.length]?.[0] as string;
    choose(next);
    document.getElementById(`tab-${next}`)?.focus();
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <section class="panel" aria-label="Details">
      <div role="tablist" class="tabs" aria-label="Details of the job" onKeyDown={onKey}>
        {TABS.map(([id, word]) => (
          <button type="button" role="tab" id={`tab-${id}`} aria-selected={tab === id} aria-controls="tab-panel" tabIndex={tab === id ? 0 : -1} onClick={() => choose(id)}>
            {word}
          </button>
        ))}
      </div>
      <div role="tabpanel" id="tab-panel" aria-labelledby={`tab-${tab}`} ref={panel} tabIndex={-1} data-tab={tab}>
        {near && tab === "logs" && <LogsTab run={run} row={row} />}
        {near && tab === "seats" && <SeatsTab run={run} row={row} />}
        {near && tab === "metrics" && <MetricsTab run={run} />}
        {near && tab === "checkpoints" && <CheckpointsTab run={run} />}
        {near && tab === "events" && <EventsTab run={run} />}
        {near && tab === "spec" && <SpecTab run={run} />}
      </div>
    </section>
  );
}
