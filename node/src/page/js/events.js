// Server-sent events: what changed, so that a view loads it again. An event says that something is new, never what.

const listeners = new Set();
let source = null;
let onState = () => {};

/** Hears every event as `(kind, data)` until the returned function is called. Kind "all" means: load everything. */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Tells whom to call with whether the stream is up. */
export function whenStateChanges(callback) {
  onState = callback;
}

function tell(kind, data) {
  for (const listener of listeners) listener(kind, data);
}

/** Opens the stream; the browser connects again by itself after a loss, and then everything counts as new. */
export function open() {
  close();
  source = new EventSource("/v1/events");
  let wasLost = false;
  source.addEventListener("open", () => {
    onState(true);
    if (wasLost) tell("all", {});
    wasLost = false;
  });
  source.addEventListener("error", () => {
    onState(false);
    wasLost = true;
  });
  for (const kind of ["request", "site", "all"]) {
    source.addEventListener(kind, (event) => tell(kind, JSON.parse(event.data)));
  }
}

/** Closes the stream. */
export function close() {
  if (source) source.close();
  source = null;
}

/** Calls `action` at most once in `milliseconds`, and once after the last wish. */
export function calmly(action, milliseconds) {
  let timer = null;
  let last = 0;
  return () => {
    if (timer !== null) return;
    const wait = Math.max(0, last + milliseconds - Date.now());
    timer = setTimeout(() => {
      timer = null;
      last = Date.now();
      action();
    }, wait);
  };
}
