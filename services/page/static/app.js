// The frame of the page: which view an address shows, the login of a secured plane, and the refresh every few seconds.
import {ask, setToken, takeActsToken} from "./api.js";
import {element} from "./elements.js";
import {BucketView} from "./bucket.js";
import {PlaneView} from "./plane.js";
import {showError} from "./acts.js";

const REFRESH_MS = 5000;
const main = document.getElementById("main"), place = document.getElementById("place"), state = document.getElementById("state");
let view = null, plane = {}, isLoginShown = false;

function showLogin() {
  if (isLoginShown) return;
  isLoginShown = true;
  view = null;
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

// Shows what the address names. A view that cannot be shown says why, and is tried again with the next refresh.
async function open() {
  const [, kind, ...names] = location.hash.split("/").map(decodeURIComponent);
  main.replaceChildren();
  view = null;
  try {
    plane = await ask("plane");
    if (kind === "bucket" && names.length === 2) {
      document.title = `${names.join("/")} – deepclean`;
      place.textContent = ` / ${names.join("/")}`;
      const made = new BucketView(main, ...names, plane);
      await made.load();
      view = made;
    } else {
      document.title = "deepclean";
      place.textContent = "";
      const made = view = new PlaneView(main);
      await made.refresh(plane);
    }
    showState();
  } catch (error) {
    if (error.status === 401) showLogin();
    else showFailure(kind === "bucket" ? names.join("/") : "The plane", error);
  }
}

function showFailure(title, error) {
  main.replaceChildren();
  element("h1", main, {textContent: title});
  showError(element("div", main), error);
}

function showState() {
  state.textContent = plane.error ? "not seen" : plane.state ? `${plane.state}, ${plane.shards} shard${plane.shards === 1 ? "" : "s"}` : "";
}

async function refresh() {
  if (document.hidden || isLoginShown) return;
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
