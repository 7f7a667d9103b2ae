// Server-sent events: what changed, so that a view loads it again. An event says that something is new, never what.

import { headers } from "./api.js";

// How long after a loss the stream is asked for again, in milliseconds.
const AGAIN_MS = 3000;

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

/** Connects, and again after each loss; then everything counts as new. An EventSource could not show the page's half of the session. */
async function connect(isLate) {
  disconnect();
  const own = new AbortController();
  source = own;
  let wasLost = isLate;
  while (source === own) {
    try {
      const response = await fetch("/v1/events", { headers: headers("text/event-stream"), cache: "no-store", signal: own.signal });
      if (response.status === 401) break;
      if (response.ok) {
        onState(true);
        if (wasLost) tell("all", {});
        await hear(response.body);
      }
    } catch {
      // The node does not answer, or nobody wants the stream any more.
    }
    wasLost = true;
    if (source !== own) return;
    onState(false);
    await new Promise((done) => setTimeout(done, AGAIN_MS));
  }
  if (source === own) onState(false);
}

/** Tells the events of a stream until its end; between two is an empty line. */
async function hear(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (text + value).split("\n\n");
    text = events.pop();
    for (const event of events) {
      const fields = Object.fromEntries(event.split("\n").map((line) => line.split(/: ?(.*)/s, 2)));
      if (fields.event) tell(fields.event, JSON.parse(fields.data));
    }
  }
}

/** Closes the stream. */
export function close() {
  isWanted = false;
  disconnect();
}

function disconnect() {
  const old = source;
  source = null;
  old?.abort();
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
