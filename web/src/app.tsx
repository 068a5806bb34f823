/** The frame of all pages: navigation, banner, notes, dialogs, and the keys that work everywhere. */
import { useEffect, useState } from "preact/hooks";
import { about, firstView } from "./about";
import { refused, token } from "./auth";
import { announcement, commandOf, copy, note } from "./clipboard";
import { addKeys } from "./keys";
import { wantsSearch } from "./job/logs";
import { GoTo } from "./parts/goto";
import { Help } from "./parts/help";
import { SignIn } from "./parts/sign-in";
import { Banner, LiveWord } from "./parts/live";
import { Sentence } from "./parts/basics";
import { FailuresPage } from "./pages/failures";
import { JobPage } from "./pages/job";
import { JobsPage } from "./pages/jobs";
import { ElsewherePage } from "./pages/elsewhere";
import { go, route, setQuery } from "./route";
import { dark, switchTheme } from "./theme";

const PAGES: [string, string][] = [
  ["jobs", "Jobs"],
  ["nodes", "Nodes"],
  ["queue", "Queue"],
  ["failures", "Failures"],
];

/** The command of the panel that has the focus, else of the page. */
function copyCommand(): void {
  const panel = document.activeElement?.closest<HTMLElement>("[data-command]");
  void copy("the command", panel?.dataset.command ?? commandOf(route.peek()));
}

/** The whole page. */
export function App() {
  const [dialog, open] = useState<"help" | "goto" | undefined>();
  const here = route.value;
  useEffect(() => {
    const filter = () => {
      const input = document.querySelector<HTMLInputElement>("input[data-filter]");
      if (input) {
        input.focus();
        input.select();
      } else if (route.peek().page === "job") {
        wantsSearch.value = true;
        setQuery({ tab: "logs" });
      } else go("#/jobs");
    };
    const back = () => {
      if (route.peek().page === "job") go("#/jobs");
    };
    return addKeys([
      { keys: "/", does: "filter or search", run: filter },
      { keys: "Ctrl+k", does: "go to a page or a job", run: () => open("goto") },
      { keys: "?", does: "this help", run: () => open("help") },
      { keys: "g j", does: "jobs", run: () => go("#/jobs") },
      { keys: "g n", does: "nodes", run: () => go("#/nodes") },
      { keys: "g q", does: "queue", run: () => go("#/queue") },
      { keys: "g f", does: "failures", run: () => go("#/failures") },
      { keys: "t", does: "dark or light", run: switchTheme },
      { keys: "y", does: "copy the link to this view", run: () => void copy("the link", location.href) },
      { keys: "c", does: "copy the command that prints the same", run: copyCommand },
      { keys: "Esc", does: "back", run: back },
    ]);
  }, []);
  useEffect(() => {
    const title = here.page === "job" ? here.name : PAGES.find(([page]) => page === here.page)?.[1];
    document.title = title ? `${title} – Trainyard` : "Trainyard";
  }, [here.page, here.name]);
  useEffect(() => {
    if (refused.value) return;
    // Where nothing can be shown, live data is not worth less.
    const timer = setTimeout(firstView, 3000);
    return () => clearTimeout(timer);
  }, []);
  const shut = () => open(undefined);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>
        skip to content
      </a>
      <header class="top">
        <a class="brand" href="#/jobs">
          Trainyard
        </a>
        <nav aria-label="Pages">
          {PAGES.map(([page, word]) => (
            <a href={`#/${page}`} aria-current={here.page === page || (page === "jobs" && here.page === "job") ? "page" : undefined}>
              {word}
            </a>
          ))}
        </nav>
        <div class="tools">
          <LiveWord />
          <button type="button" class="quiet-button" onClick={() => open("goto")}>
            go to <kbd>Ctrl K</kbd>
          </button>
          <button type="button" class="quiet-button" onClick={switchTheme}>
            {dark.value ? "light" : "dark"}
          </button>
          <button type="button" class="quiet-button" onClick={() => open("help")}>
            keys <kbd>?</kbd>
          </button>
        </div>
      </header>
      <Banner />
      <main id="main" tabIndex={-1}>
        {refused.value ? <SignIn /> : <Page key={token.value} />}
      </main>
      <footer class="bottom quiet small">
        Trainyard {about.value?.build.version ?? ""} {about.value?.readOnly !== false && "· read-only"} {about.value?.root && `· ${about.value.root}`}
      </footer>
      {note.value && (
        <div class="note" role="status">
          <Sentence text={note.value.text} />
          {note.value.copy !== undefined && <input readOnly aria-label="text to copy" value={note.value.copy} onFocus={(event) => event.currentTarget.select()} />}
          <button type="button" class="quiet-button" onClick={() => (note.value = undefined)}>
            close
          </button>
        </div>
      )}
      <div class="hidden-text" aria-live="polite" id="announcement">
        {announcement.value}
      </div>
      {dialog === "help" && <Help close={shut} />}
      {dialog === "goto" && <GoTo close={shut} />}
    </>
  );
}

function Page() {
  const here = route.value;
  switch (here.page) {
    case "jobs":
      return <JobsPage />;
    case "job":
      return <JobPage namespace={here.namespace ?? ""} name={here.name ?? ""} key={`${here.namespace}/${here.name}`} />;
    case "nodes":
    case "queue":
      return <ElsewherePage what={here.page} key={here.page} />;
    case "failures":
      return <FailuresPage />;
    default:
      return (
        <>
          <h1>No such page</h1>
          <p>
            The address names no page of this dashboard. <a href="#/jobs">Open the list of jobs</a>.
          </p>
        </>
      );
  }
}
