// Questions to the page's own server. Nothing is asked from anywhere else.
const TOKEN = "deepclean.token", ACTS = "deepclean.acts";

// A refusal, with the plane's code and a sentence.
export class Refusal extends Error {
  constructor(status, {code = "UNREACHABLE", message = "The page's server does not answer: is deepclean still running?"} = {}) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// The token of acts stands behind "#act=" of the address that was printed. It is kept until the tab is closed.
export function takeActsToken() {
  const found = location.hash.match(/^#act=([\w-]+)$/);
  if (!found) return;
  sessionStorage.setItem(ACTS, found[1]);
  history.replaceState(null, "", "#/");
}

export function setToken(token) { sessionStorage.setItem(TOKEN, token); }

export function hasActsToken() { return Boolean(sessionStorage.getItem(ACTS)); }

async function fetched(path, options) {
  const token = sessionStorage.getItem(TOKEN), headers = {...options.headers};
  if (token) headers.Authorization = `Bearer ${token}`;
  let answer;
  try {
    answer = await fetch(`/api/${path}`, {...options, headers, cache: "no-store"});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0);
  }
  let read;
  try { read = await answer.json(); } catch { read = undefined; }
  if (!answer.ok) throw new Refusal(answer.status, read);
  return read;
}

export function ask(path, parameters = {}, signal = undefined) {
  const query = new URLSearchParams(parameters).toString();
  return fetched(query ? `${path}?${query}` : path, {signal});
}

export function post(path, body, signal = undefined) {
  return fetched(path, {method: "POST", body: JSON.stringify(body), signal,
    headers: {"Content-Type": "application/json", "X-Deepclean-Acts": sessionStorage.getItem(ACTS) || ""}});
}

// Asks what follows each other fast, as while somebody types: the newest question counts, and older ones are given up.
export class Newest {
  constructor(pause = 0) { this.pause = pause; this.running = null; }

  // Returns null for a question that a newer one has replaced.
  async of(asking) {
    this.running?.abort();
    const running = this.running = new AbortController();
    try {
      if (this.pause) await new Promise((done) => { setTimeout(done, this.pause); });
      if (running.signal.aborted) return null;
      const answer = await asking(running.signal);
      return running.signal.aborted ? null : answer;
    } catch (error) {
      if (running.signal.aborted) return null;
      throw error;
    }
  }
}
