// Acts: each asks once more in a dialog that names the bytes, and says afterwards what was done.
import {hasActsToken, post} from "./api.js";
import {bytesText, element} from "./elements.js";

export function mayAct(plane) { return Boolean(plane.may_act) && hasActsToken(); }

export function bytesInWords(bytes) {
  const exact = BigInt(bytes).toLocaleString("en");
  return BigInt(bytes) < 1024n ? `${exact} bytes` : `${bytesText(bytes)} (${exact} bytes)`;
}

export function say(text) { document.getElementById("said").textContent = text; }

// Shows a sentence where an act or a question has failed.
export function showError(parent, error) {
  parent.replaceChildren();
  element("p", parent, {className: "note", textContent: error.message}, {role: "alert"});
}

// Returns whether the reader wants it. "Cancel" has the focus, so that a careless Enter does nothing.
function confirmed(title, sentences, verb) {
  const dialog = element("dialog", document.body, {}, {"aria-labelledby": "asked"});
  const form = element("form", dialog, {method: "dialog"});
  element("h2", form, {textContent: title, id: "asked"});
  for (const textContent of sentences) element("p", form, {textContent});
  const tools = element("div", form, {className: "tools"});
  element("button", tools, {type: "submit", value: "", textContent: "Cancel", autofocus: true});
  element("button", tools, {type: "submit", value: "yes", textContent: verb, className: "act"});
  return new Promise((answer) => {
    dialog.addEventListener("close", () => { dialog.remove(); answer(dialog.returnValue === "yes"); });
    dialog.showModal();
  });
}

// Asks, acts, draws the bucket anew, and then says what came of it, where drawing does not remove it. Also an act that was
// refused, or whose answer is missing, may have changed something, or something else has.
export async function act(view, {title, sentences, verb, path, body}) {
  if (!await confirmed(title, sentences, verb)) return;
  let said = [], failures = [];
  try {
    const answer = await post(`acts/${path}`, body);
    said = [answer.message, ...answer.refused];
  } catch (error) { failures.push(error); }
  try { await view.load(); } catch (error) { failures.push(error); }
  view.outcome.replaceChildren();
  for (const textContent of said) element("p", view.outcome, {textContent, className: "note"});
  for (const error of failures) element("p", view.outcome, {textContent: error.message, className: "note"}, {role: "alert"});
  say(said.join(" "));
  view.outcome.focus(); // what was focused is no longer there
}
