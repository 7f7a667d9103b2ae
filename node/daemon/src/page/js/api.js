// Calls of the node's API. Half of the session's secret is a cookie that scripts cannot read, and which the browser shows to programs at
// other ports too; the other half is kept where only pages of this port find it. No token is kept here.

/** What the node says is wrong (RFC 9457). */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `the node answers ${status}`);
    this.status = status;
    this.key = body.key ?? null;
    this.rule = body.rule ?? null;
  }
}

let onLocked = () => {};

// Where the page's half is: other tabs have it as well.
const PAGE = "kolo-page";

/** What every call says. */
export function headers(accept) {
  const page = localStorage.getItem(PAGE);
  return page ? { accept, [PAGE]: page } : { accept };
}

/** Opens a session with a token, or the code of a link. */
export async function signIn(opener) {
  const session = await post("/v1/session", opener);
  localStorage.setItem(PAGE, session.page);
  return session;
}

/** Ends the session. */
export async function signOut() {
  await remove("/v1/session");
  localStorage.removeItem(PAGE);
}

// What the session may do: "operator", "read" or "submit".
let scope = null;

/** Remembers what the session may do. */
export function useScope(value) {
  scope = value;
}

/** Whether the session may show a view. */
export function mayShow(view) {
  return scope === "operator" || view === "requests" || (scope === "read" && view !== "book");
}

/** Whether the session is the owner's. */
export const isOperator = () => scope === "operator";

/** Whether the session may change requests. */
export const mayChange = () => scope !== "read";

/** Tells whom to call when the node wants a token first. */
export function whenLocked(callback) {
  onLocked = callback;
}

async function call(method, path, body, signal) {
  const options = { method, signal, headers: headers("application/json"), cache: "no-store" };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["content-type"] = "application/json";
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { detail: "the node does not answer" });
  }
  const text = await response.text();
  let answer = {};
  try {
    answer = text ? JSON.parse(text) : {};
  } catch {
    answer = { detail: `the node's answer is not understood (status ${response.status})` };
    if (response.ok) throw new Problem(response.status, answer);
  }
  if (response.ok) return answer;
  if (response.status === 401 && path !== "/v1/session") onLocked();
  throw new Problem(response.status, answer);
}

export const get = (path, signal) => call("GET", path, undefined, signal);
export const post = (path, body, signal) => call("POST", path, body, signal);
export const remove = (path) => call("DELETE", path);

/** A path with a query; empty values are left out. */
export function query(path, values) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== "") words.set(name, value);
  }
  const text = words.toString();
  return text ? `${path}?${text}` : path;
}

/** All pages of a list, at most `pagesMax` of them, joined under `key`; the rest of the last answer stays as it is. */
export async function pages(path, values, key, pagesMax, signal) {
  const all = [];
  let after = null;
  for (let page = 0; page < pagesMax; page += 1) {
    const answer = await get(query(path, { ...values, after }), signal);
    all.push(...answer[key]);
    after = answer.next;
    if (!after) return { ...answer, [key]: all, isCut: false };
    if (page === pagesMax - 1) return { ...answer, [key]: all, isCut: true };
  }
  return { [key]: all, isCut: false };
}
