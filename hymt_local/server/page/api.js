// What the page asks of the server. The key lives in this tab's sessionStorage and nowhere else.

const KEY = "hymt.key";

export class ServerFault extends Error {
  constructor(message, { hint = "", code = "", status = 0 } = {}) {
    super(message);
    Object.assign(this, { hint, code, status });
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  drop: () => sessionStorage.removeItem(KEY),
};

// `hymt web` opens this page with a code in the fragment, which never leaves the browser by itself. It is good once.
export async function redeemCode() {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (location.hash) history.replaceState(null, "", location.pathname);
  if (!code) return;
  const { token } = await ask("/v1/session", { method: "POST", json: { code } });
  key.set(token);
}

// Returns the parsed JSON of an answer; every failure is a ServerFault, an abort stays an AbortError.
export async function ask(path, options = {}) {
  const response = await send(path, options);
  return response.status === 204 ? null : response.json();
}

export async function send(path, { json, headers = {}, ...options } = {}) {
  const all = { ...headers };
  if (key.get()) all.Authorization = `Bearer ${key.get()}`;
  if (json !== undefined) {
    all["Content-Type"] = "application/json";
    options.body = JSON.stringify(json);
  }
  let response;
  try {
    response = await fetch(path, { ...options, headers: all, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw gone("The server does not answer.");
  }
  if (!response.ok) throw await faultOf(response);
  return response;
}

function gone(message) {
  return new ServerFault(message, { hint: "`hymt web` starts it again.", code: "unreachable" });
}

async function faultOf(response) {
  const { error = {} } = await response.json().catch(() => ({}));
  return new ServerFault(error.message ?? `The server answered ${response.status}.`, { ...error, status: response.status });
}

// Yields {event, data} of a server-sent stream that is the answer to a POST. Leaving the loop closes the connection.
export async function* stream(path, json, signal) {
  const response = await send(path, { method: "POST", json, signal, headers: { Accept: "text/event-stream" } });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error) => {
        throw error.name === "AbortError" ? error : gone("The connection to the server broke off.");
      });
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const parsed = parse(block);
        if (parsed) yield parsed;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parse(block) {
  const fields = { event: "message", data: "" };
  for (const line of block.split("\n")) {
    const [, name, value] = line.match(/^(event|data): ?(.*)$/) ?? [];
    if (name === "event") fields.event = value;
    if (name === "data") fields.data += value;
  }
  return fields.data ? { event: fields.event, data: JSON.parse(fields.data) } : null;  // without data: a ping
}
