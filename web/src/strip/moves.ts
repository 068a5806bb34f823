/** How the strip is moved: keys, wheel and pointer. */
import type { Scene } from "./scene";

/** Keys of the strip while it has the focus. */
export function stripKeys(scene: Scene, actions: { toMark(direction: 1 | -1): void; openLogs(): void }, event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { from, to } = scene.window.peek();
  const here = scene.cursor.peek() ?? { row: -1, t: (from + to) / 2 };
  const far = event.shiftKey ? 10 : 1;
  const move = (rows: number, cells: number) => scene.moveTo({ row: here.row + rows * far, t: here.t + cells * far * scene.step });
  const keys: Record<string, () => void> = {
    w: () => scene.zoom(0.6),
    s: () => scene.zoom(1 / 0.6),
    "+": () => scene.zoom(0.6),
    "=": () => scene.zoom(0.6),
    "-": () => scene.zoom(1 / 0.6),
    a: () => scene.pan(-0.2),
    d: () => scene.pan(0.2),
    ArrowLeft: () => move(0, -1),
    ArrowRight: () => move(0, 1),
    ArrowUp: () => move(-1, 0),
    ArrowDown: () => move(1, 0),
    PageUp: () => scene.moveTo({ row: here.row - 20, t: here.t }),
    PageDown: () => scene.moveTo({ row: here.row + 20, t: here.t }),
    Home: () => scene.moveTo({ row: here.row, t: from }),
    End: () => scene.moveTo({ row: here.row, t: to - 1 }),
    n: () => actions.toMark(1),
    p: () => actions.toMark(-1),
    l: () => actions.openLogs(),
    Enter: () => actions.openLogs(),
    "0": () => scene.show(scene.limits, true),
  };
  const found = keys[event.key];
  if (found) {
    found();
    event.preventDefault();
  } else if (event.key === "Escape" && scene.cursor.peek()) {
    scene.cursor.value = undefined;
    scene.redraw();
    event.preventDefault();
  }
}

/** Ctrl and wheel zooms at the pointer; a sideways wheel moves; a plain wheel scrolls the rows, as everywhere. */
export function wheel(scene: Scene, event: WheelEvent): void {
  const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
  if (event.ctrlKey || event.metaKey) {
    event.preventDefault();
    const cell = scene.cellAt(event.clientX - box.left, event.clientY - box.top);
    scene.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.008), cell?.t);
    return;
  }
  const sideways = event.shiftKey ? event.deltaY || event.deltaX : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
  if (sideways === 0) return;
  event.preventDefault();
  scene.pan(sideways / Math.max(1, scene.width - scene.left));
}

/** A drag moves the window; a press without a move puts the cursor there. */
export function drag(scene: Scene, event: PointerEvent): void {
  if (event.button !== 0 || event.pointerType === "touch") return;
  const element = event.currentTarget as HTMLElement;
  const box = element.getBoundingClientRect();
  // The scroll bar is not part of the picture.
  if (event.clientX - box.left >= element.clientWidth) return;
  const start = { x: event.clientX, y: event.clientY, window: scene.window.peek(), top: element.scrollTop };
  let moved = false;
  const onMove = (next: PointerEvent) => {
    const [x, y] = [next.clientX - start.x, next.clientY - start.y];
    if (!moved && Math.hypot(x, y) < 4) return;
    moved = true;
    const share = -x / Math.max(1, scene.width - scene.left);
    const by = (start.window.to - start.window.from) * share;
    scene.show({ from: start.window.from + by, to: start.window.to + by });
    element.scrollTop = start.top - y;
  };
  const onUp = (end: PointerEvent) => {
    removeEventListener("pointermove", onMove);
    removeEventListener("pointerup", onUp);
    removeEventListener("pointercancel", onUp);
    const cell = moved || end.type === "pointercancel" ? undefined : scene.cellAt(end.clientX - box.left, end.clientY - box.top);
    if (cell) scene.moveTo(cell);
  };
  addEventListener("pointermove", onMove);
  addEventListener("pointerup", onUp);
  addEventListener("pointercancel", onUp);
}
