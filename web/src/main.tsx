/** Starts the page. */
import "uplot/dist/uPlot.min.css";
import "./style/base.css";
import "./style/parts.css";
import "./style/job.css";
import { render } from "preact";
import { App } from "./app";
import { signIn } from "./auth";
import { watchKeys } from "./keys";
import { watchRoute } from "./route";
import { watchTheme } from "./theme";

async function start(): Promise<void> {
  const root = document.getElementById("app");
  if (!root) return;
  watchTheme();
  // First of all the token leaves the address.
  await signIn();
  watchRoute();
  watchKeys();
  render(<App />, root);
}

void start();
