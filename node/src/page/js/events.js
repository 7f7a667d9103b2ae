// Server-sent events: what changed, so that a view loads it again. An event says that something is new, never what.

const listeners = new Set();
let source = null;
let isWanted = false;
let onState = () => {};

/** Hears every event as `(kind, data)` until the returned function is called. Kind "all" means: load everything. */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Waits for the first load of a view; `stop` is handed back, or called when the load fails. */
export async function loaded(load, stop) {
  try {
    await load();
  } catch (error) {
    stop();
    throw error;
  }
  return stop;
}

/** Tells whom to call with whether the stream is up. */
export function whenStateChanges(callback) {
  onState = callback;
}

function tell(kind, data) {
  for (const listener of listeners) listener(kind, data);
}

/**
 * Opens the stream while the page can be seen. A browser has six connections for one node, and a stream takes one of them: those
 * of pages in the background would leave none for the others.
 */
export function open() {
  isWanted = true;
  connect(false);
}

document.addEventListener("visibilitychange", () => {
  if (!isWanted) return;
  if (document.hidden) disconnect();
  else connect(true);
});
window.addEventListener("pagehide", disconnect);
window.addEventListener("pageshow", (event) => {
  if (event.persisted && isWanted) connect(true);
});

/** The browser connects again by itself after a loss, and then everything counts as new. */
function connect(isLate) {
  disconnect();
  source = new EventSource("/v1/events");
  let wasLost = isLate;
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
  isWanted = false;
  disconnect();
}

function disconnect() {
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
