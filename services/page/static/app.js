// The frame of the page: which view an address shows, the login of a secured plane, and the refresh every few seconds.
import {ask, setToken, takeActsToken} from "./api.js";
import {element} from "./elements.js";
import {BucketView} from "./bucket.js";
import {PlaneView} from "./plane.js";
import {showError} from "./acts.js";

const REFRESH_MS = 5000;
const main = document.getElementById("main"), place = document.getElementById("place"), state = document.getElementById("state");
let view = null, plane = {}, opening = null, isLoginShown = false;

function showLogin() {
  if (isLoginShown) return;
  isLoginShown = true;
  view = opening = null;
  main.replaceChildren();
  element("h1", main, {textContent: "This plane is secured"});
  const form = element("form", main, {className: "tools"});
  const input = element("input", element("label", form, {textContent: "HTTP token of the plane "}),
    {type: "password", required: true, autocomplete: "off"});
  element("button", form, {type: "submit", textContent: "Open"});
  element("p", main, {className: "quiet", textContent: "The token is in the file http-token below secrets in the plane's home."});
  form.onsubmit = (event) => { event.preventDefault(); setToken(input.value.trim()); isLoginShown = false; open(); };
  input.focus();
}

// Shows what the address names. A view that cannot be shown says why, and is tried again with the next refresh. Each view
// draws into an element of its own: one that is late, because another was opened meanwhile, draws where nobody sees it.
async function open() {
  const root = element("div", main);
  main.replaceChildren(root);
  view = null;
  opening = root;
  try {
    const made = await viewOf(root);
    if (opening === root) { view = made; showState(); }
  } catch (error) {
    if (opening !== root) return;
    if (error.status === 401) showLogin();
    else showFailure(root, error);
  } finally {
    if (opening === root) opening = null;
  }
}

async function viewOf(root) {
  const [, kind, ...names] = location.hash.split("/").map(decodeURIComponent);
  const isBucket = kind === "bucket" && names.length === 2;
  document.title = isBucket ? `${names.join("/")} – deepclean` : "deepclean";
  place.textContent = isBucket ? ` / ${names.join("/")}` : "";
  const made = isBucket ? new BucketView(root, ...names) : new PlaneView(root);
  const asked = ask("plane");
  await made.load(asked); // all questions at once
  plane = await asked;
  return made;
}

function showFailure(root, error) {
  root.replaceChildren();
  element("h1", root, {textContent: "This cannot be shown now"});
  showError(element("div", root), error);
}

function showState() {
  state.textContent = plane.error ? "not seen" : plane.state ? `${plane.state}, ${plane.shards} shard${plane.shards === 1 ? "" : "s"}` : "";
}

async function refresh() {
  if (document.hidden || isLoginShown || opening) return;
  if (!view) { await open(); return; }
  try {
    plane = await ask("plane");
    showState();
    await view?.refresh(plane);
  } catch (error) {
    if (error.status === 401) showLogin();
    else state.textContent = error.message;
  }
}

async function refreshForEver() {
  await refresh();
  setTimeout(refreshForEver, REFRESH_MS);
}

document.querySelector(".skip").onclick = (event) => { event.preventDefault(); main.focus(); };
addEventListener("hashchange", async () => { takeActsToken(); await open(); main.focus(); });
takeActsToken();
await open();
setTimeout(refreshForEver, REFRESH_MS);
