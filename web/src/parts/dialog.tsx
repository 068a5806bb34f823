/** A dialog of the browser: it keeps the focus inside, and Esc closes it. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

/** Shows `children` above the page until it is closed. */
export function Dialog({ title, close, children }: { title: string; close(): void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog ref={dialog} aria-labelledby="dialog-title" onClose={close} onClick={(event) => event.target === dialog.current && close()}>
      <div class="dialog">
        <div class="panel-head">
          <h2 id="dialog-title">{title}</h2>
          <button type="button" class="quiet-button" onClick={close}>
            close <kbd>Esc</kbd>
          </button>
        </div>
        {children}
      </div>
    </dialog>
  );
}
