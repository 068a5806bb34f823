/** Small parts that all pages use: panels, the states of a document, times, state words. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { copy } from "../clipboard";
import { JOB_STATES } from "../palette";
import type { Problem } from "../types";
import { capital, millisOf, moment, utc } from "../words";
import { Text } from "./text";

/** A part of a page with a heading and the command that prints the same. */
export function Panel({ title, id, command, children, tools }: { title: string; id: string; command?: string; children: ComponentChildren; tools?: ComponentChildren }) {
  return (
    <section class="panel" aria-labelledby={`${id}-title`} id={id} data-command={command}>
      <div class="panel-head">
        <h2 id={`${id}-title`}>{title}</h2>
        {tools}
        {command && <CopyCommand command={command} what={title} />}
      </div>
      {children}
    </section>
  );
}

/** A quiet button that copies a command. */
export function CopyCommand({ command, what }: { command: string; what: string }) {
  return (
    <button type="button" class="quiet-button" title={command} aria-label={`copy command: ${what}`} onClick={() => void copy("the command", command)}>
      copy command
    </button>
  );
}

/** Room for what is being loaded. Empty until that takes long enough to be noticed. */
export function Skeleton({ lines, show }: { lines: number; show: boolean }) {
  return (
    <div class="skeleton" role="status" aria-live="polite">
      {show && <span class="hidden-text">loading</span>}
      {show && Array.from({ length: lines }, (_, at) => <div class="bone" style={{ width: `${60 + ((at * 37) % 40)}%` }} />)}
    </div>
  );
}

/** Texts with `literals` in backticks shown as code. */
export function Sentence({ text }: { text: string }) {
  return <>{text.split("`").map((part, at) => (at % 2 === 1 ? <code><Text raw={part} /></code> : <Text raw={part} />))}</>;
}

/** Why there is nothing to show, what to do, and a button to try again. */
export function Failure({ problem, retry }: { problem: Problem; retry?: (() => void) | undefined }) {
  return (
    <div class="failure" role="alert">
      <p>
        <strong>
          <Sentence text={capital(problem.message)} />
        </strong>
      </p>
      {problem.hint && (
        <p>
          <Sentence text={capital(problem.hint)} />
        </p>
      )}
      {retry && (
        <button type="button" onClick={retry}>
          retry
        </button>
      )}
    </div>
  );
}

/** There is nothing yet, and the command that makes something. */
export function Empty({ text, command }: { text: string; command?: string | undefined }) {
  return (
    <div class="empty">
      <p>
        <Sentence text={text} />
      </p>
      {command && <Command text={command} />}
    </div>
  );
}

/** A command to copy. */
export function Command({ text }: { text: string }) {
  return (
    <p class="command">
      <code>{text}</code>{" "}
      <button type="button" class="quiet-button" onClick={() => void copy("the command", text)} aria-label={`copy command: ${text}`}>
        copy
      </button>
    </p>
  );
}

/** A moment in local time, with UTC on hover. */
export function Time({ at }: { at: string | number | null | undefined }) {
  const millis = millisOf(at);
  if (millis === undefined) return <span class="quiet">unknown</span>;
  return (
    <time dateTime={utc(millis)} title={utc(millis)}>
      {moment(millis)}
    </time>
  );
}

/** The state of a job: a sign and a word. */
export function StateWord({ state }: { state: string }) {
  const look = JOB_STATES[state] ?? JOB_STATES.unknown;
  return (
    <span class={`state tone-${look?.tone}`}>
      <span class="sign" aria-hidden="true">
        {look?.sign}
      </span>{" "}
      {look?.word}
    </span>
  );
}

/** A list that shows its first items and more on request. */
export function More<T>({ items, step, render, what }: { items: T[]; step: number; render: (item: T, at: number) => ComponentChildren; what: string }) {
  const [shown, setShown] = useState(step);
  return (
    <>
      {items.slice(0, shown).map(render)}
      {items.length > shown && (
        <button type="button" class="more" onClick={() => setShown(shown + step)}>
          show {Math.min(step, items.length - shown)} more of {items.length - shown} {what}
        </button>
      )}
    </>
  );
}
